package format_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/formattest"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

func TestDetect(t *testing.T) {
	t.Parallel()
	iso := make([]byte, 64<<10)
	copy(iso[32769:], "CD001")
	fixed := append(make([]byte, 8192), fixedFooter(8192)...)
	for name, c := range map[string]struct {
		file []byte
		want format.Kind
	}{
		"nothing":                       {nil, format.Raw},
		"a byte":                        {[]byte("Q"), format.Raw},
		"iso":                           {iso, format.Raw},
		"text":                          {[]byte("#!/bin/sh\nversion\n"), format.Raw},
		"qcow2":                         {formattest.QCOW2{}.Bytes(), format.QCOW2},
		"qcow2 behind a boot sector":    {append(make([]byte, 512), formattest.QCOW2{}.Bytes()...), format.Raw},
		"vmdk descriptor":               {[]byte("# Disk DescriptorFile\nversion=1\n"), format.VMDK},
		"vmdk descriptor, windows":      {[]byte("# Disk DescriptorFile\r\nversion=1\r\n"), format.VMDK},
		"vmfsSparse":                    {[]byte("COWD"), format.VMDK},
		"vhd fixed":                     {fixed, format.VHD},
		"vhd fixed and more":            {append(fixed, make([]byte, 512)...), format.Raw},
		"vhd footer of a larger disk":   {fixed[512:], format.Raw},
		"vhd footer with a flipped bit": {flip(fixed, len(fixed)-400), format.Raw},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tail := c.file[max(0, len(c.file)-format.TailSize):]
			if tail == nil {
				tail = []byte{}
			}
			if got := format.Detect(c.file, tail, int64(len(c.file))); got != c.want {
				t.Fatalf("detected %s, want %s", got, c.want)
			}
		})
	}
}

func flip(p []byte, at int) []byte {
	p = bytes.Clone(p)
	p[at] ^= 1
	return p
}

func TestUnsignedStreamNamesItsKindAtTheEnd(t *testing.T) {
	t.Parallel()
	for want, file := range map[format.Kind][]byte{
		format.Raw: make([]byte, 8192), format.VHD: append(make([]byte, 8192), fixedFooter(8192)...),
	} {
		out := &formattest.Memory{}
		d, err := format.NewDecoder(format.Detect(file, nil, -1), out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Write(file); err != nil {
			t.Fatal(err)
		}
		size, err := d.Finish(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if d.Kind() != want || size != 8192 {
			t.Errorf("it is %s of %d bytes, want %s of 8192", d.Kind(), size, want)
		}
	}
}

// A dirty bit says that reference counts may be wrong; this reader does not use them.
func TestDirtyQCOW2IsRead(t *testing.T) {
	t.Parallel()
	file := formattest.QCOW2{Incompatible: 1, L1: []uint64{1024}, Clusters: map[uint64][]byte{
		2: formattest.Words(1536), 3: bytes.Repeat([]byte{9}, 512)}}.Bytes()
	d, err := random(format.QCOW2, extent.File{ReaderAt: bytes.NewReader(file), Size: int64(len(file))})
	if err != nil {
		t.Fatal(err)
	}
	want := formattest.NewDisk(64 << 10)
	if err := want.Write(bytes.Repeat([]byte{9}, 512), 0); err != nil {
		t.Fatal(err)
	}
	if diff := d.Diff(want); diff != "" {
		t.Fatal(diff)
	}
}

// The places in the sample that QEMU made: it puts the log at 1 MiB, the table at 2 and the metadata at 3.
const (
	sampleLogID  = 64<<10 + 48
	sampleLogID2 = 128<<10 + 48
	sampleLog    = 1 << 20
	sampleTable  = 2 << 20
	sampleParams = 3<<20 + 64<<10
)

func TestVHDXFeatures(t *testing.T) {
	t.Parallel()
	id := "0123456789abcdef"
	for name, c := range map[string]struct {
		patches map[int]string
		reason  task.Reason
		says    string
	}{
		"log in use but empty":         {map[int]string{sampleLogID: id, sampleLogID2: id}, "", ""},
		"log that was not replayed":    {map[int]string{sampleLogID: id, sampleLogID2: id, sampleLog + 32: id}, task.BadImage, "qemu-img check -r all"},
		"parent":                       {map[int]string{sampleParams + 4: "\x02"}, task.UnsafeImage, "invalid backing file"},
		"block of 3 MiB":               {map[int]string{sampleParams: "\x00\x00\x30\x00"}, task.BadImage, "3145728"},
		"block in an impossible state": {map[int]string{sampleTable: "\x07"}, task.BadImage, "state 7"},
		"block beyond the file":        {map[int]string{sampleTable: "\x06\x00\x00\x00\x01"}, task.BadImage, "truncated"},
		"block beyond everything":      {map[int]string{sampleTable: "\x06\x00\x00\x00\x00\x00\x00\xff"}, task.BadImage, "beyond any file"},
		"region required by nobody": {map[int]string{192<<10 + 16: "x", 192<<10 + 16 + 28: "\x01", 256<<10 + 16: "x", 256<<10 + 16 + 28: "\x01"},
			task.UnsupportedImage, "region"},
		"version 2": {map[int]string{64<<10 + 66: "\x02", 128<<10 + 66: "\x02"}, task.UnsupportedImage, "version 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := readSample(t, "vhdx-dynamic")
			for at, p := range c.patches {
				copy(file[at:], p)
			}
			sealVHDX(file)
			_, err := random(format.VHDX, extent.File{ReaderAt: bytes.NewReader(file), Size: int64(len(file))})
			_, streamErr := format.Stream(context.Background(), format.VHDX, bytes.NewReader(file), &formattest.Memory{})
			for how, err := range map[string]error{"at random": err, "streamed": streamErr} {
				var bad *task.Error
				switch {
				case c.reason == "" && err != nil:
					t.Errorf("%s: refused with %v", how, err)
				case c.reason != "" && (!errors.As(err, &bad) || bad.Reason != c.reason || !strings.Contains(err.Error(), c.says)):
					t.Errorf("%s: refused with %v, want %s and %q", how, err, c.reason, c.says)
				}
			}
		})
	}
}

func TestDamagedChecksumsAreRefused(t *testing.T) {
	t.Parallel()
	for name, at := range map[string][]int{
		"vhdx-dynamic": {64<<10 + 100, 128<<10 + 100},
		"vhd-dynamic":  {100},
	} {
		file := readSample(t, name)
		for _, i := range at {
			file[i] ^= 1
		}
		kind, _, _ := strings.Cut(name, "-")
		_, err := format.Open(format.Kind(kind), bytes.NewReader(file), int64(len(file)))
		var bad *task.Error
		if !errors.As(err, &bad) || bad.Reason != task.BadImage || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("%s: refused with %v", name, err)
		}
	}
}
