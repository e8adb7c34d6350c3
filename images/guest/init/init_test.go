//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandLineScript(t *testing.T) {
	for cmdline, want := range map[string]string{
		`console=ttyS0 quiet`:                               "",
		`console=ttyS0 berth.run=disks panic=1`:             "disks",
		`berth.run="sha256 vdb; poweroff" console=ttyS0`:    "sha256 vdb; poweroff",
		`console=ttyS0 "berth.run=sha256 vdb; poweroff"`:    "sha256 vdb; poweroff",
		`console=ttyS0 berth.run="never closed`:             "never closed",
		`console=ttyS0 notberth.run=disks berth.running=no`: "",
	} {
		if got := commandLineScript(cmdline); got != want {
			t.Errorf("script in %q = %q, want %q", cmdline, got, want)
		}
	}
}

func TestUserDataIsAScriptOnlyWithItsHeader(t *testing.T) {
	for text, want := range map[string][]string{
		"":                              nil,
		"#cloud-config\nruncmd: []\n":   nil,
		"#berth-guest\ndisks\r\nreboot": {"disks\r", "reboot"},
		"#berth-guest \r\ndisks":        {"disks"},
	} {
		if diff := cmp.Diff(want, cloudInit{"user-data": []byte(text)}.script()); diff != "" {
			t.Errorf("script of %q (-want +got):\n%s", text, diff)
		}
	}
}

func TestLabelIn(t *testing.T) {
	iso := make([]byte, 40<<10)
	copy(iso[32769:], "CD001")
	copy(iso[32808:], "cidata                          ")
	fat16 := make([]byte, 1<<10)
	copy(fat16[54:], "FAT16   ")
	copy(fat16[43:], "CIDATA     ")
	fat32 := make([]byte, 1<<10)
	copy(fat32[82:], "FAT32   ")
	copy(fat32[71:], "config-2   ")
	for name, c := range map[string]struct {
		content     []byte
		label, kind string
	}{
		"iso9660": {iso, "cidata", "iso9660"}, "fat16": {fat16, "CIDATA", "vfat"}, "fat32": {fat32, "config-2", "vfat"},
		"nothing": {make([]byte, 64<<10), "", ""}, "too short": {make([]byte, 100), "", ""},
	} {
		if label, kind := labelIn(bytes.NewReader(c.content)); label != c.label || kind != c.kind {
			t.Errorf("%s: label %q kind %q, want %q %q", name, label, kind, c.label, c.kind)
		}
	}
}

func TestBusOf(t *testing.T) {
	for path, want := range map[string]string{
		"../../devices/pci0000:00/0000:00:02.0/virtio1/block/vda":                                       "virtio",
		"../../devices/pci0000:00/0000:00:03.0/virtio2/host0/target0:0:0/0:0:0:0/block/sda":             "scsi",
		"../../devices/pci0000:00/0000:00:1f.2/ata1/host1/target1:0:0/1:0:0:0/block/sdb":                "sata",
		"../../devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1":                                      "nvme",
		"../../devices/pci0000:00/0000:00:05.0/usb1/1-1/1-1:1.0/host2/target2:0:0/2:0:0:0/block/sdc":    "usb",
		"../../devices/virtual/block/loop0":                                                             "unknown",
		"../../devices/pci0000:00/0000:00:02.0/0000:01:00.0/virtio5/block/vdc/vdc1 (behind a PCI port)": "virtio",
	} {
		if got := busOf(path); got != want {
			t.Errorf("bus of %s = %s, want %s", path, got, want)
		}
	}
}

func TestParseRange(t *testing.T) {
	if off, n, err := parseRange("0x10", "16", 32); off != 16 || n != 16 || err != nil {
		t.Errorf("range 0x10+16 of 32 = %d+%d, %v", off, n, err)
	}
	for _, bad := range [][2]string{{"0", "33"}, {"33", "0"}, {"-1", "1"}, {"1", "-1"}, {"9223372036854775807", "1"}, {"x", "1"}, {"1", ""}} {
		if off, n, err := parseRange(bad[0], bad[1], 32); err == nil {
			t.Errorf("range %s+%s of 32 = %d+%d, want an error", bad[0], bad[1], off, n)
		}
	}
}

func TestParseUevent(t *testing.T) {
	got := parseUevent([]byte("add@/devices/x\x00ACTION=add\x00SUBSYSTEM=block\x00DEVNAME=vdb\x00DEVTYPE=disk\x00SEQNUM=1\x00"))
	if want := (uevent{Action: "add", Subsystem: "block", DevType: "disk", DevName: "vdb"}); got != want {
		t.Errorf("event = %+v, want %+v", got, want)
	}
}

// line is the two ends of the agent's port.
type line struct {
	*strings.Reader
	bytes.Buffer
}

func (l *line) Read(p []byte) (int, error) { return l.Reader.Read(p) }

func TestAgentAnswers(t *testing.T) {
	flushed := 0
	g := &guest{out: &bytes.Buffer{}, flush: func() { flushed++ }}
	l := &line{Reader: strings.NewReader(strings.Join([]string{
		`garbage` + "\xff" + `{"execute":"guest-sync-delimited","arguments":{"id":5}}`,
		`{"execute":"guest-ping","id":"x"}`,
		`{"execute":"guest-fsfreeze-freeze"}`,
		`{"execute":"guest-fsfreeze-freeze"}`,
		`{"execute":"guest-fsfreeze-status"}`,
		`{"execute":"guest-fsfreeze-thaw"}`,
		`{"execute":"guest-fsfreeze-thaw"}`,
		`{"execute":"guest-file-open"}`,
		`{"execute":`,
	}, "\n") + "\n")}
	g.talk(l)
	want := "\xff" + `{"return":5}
{"return":{},"id":"x"}
{"return":1}
{"error":{"class":"GenericError","desc":"the guest is frozen already"}}
{"return":"frozen"}
{"return":1}
{"return":0}
{"error":{"class":"CommandNotFound","desc":"The command guest-file-open has not been found"}}
{"error":{"class":"GenericError","desc":"not a JSON request: unexpected end of JSON input"}}
`
	if diff := cmp.Diff(want, l.String()); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if flushed != 1 {
		t.Errorf("disks were flushed %d times, want once", flushed)
	}
}

func TestAgentListsWhatItCan(t *testing.T) {
	reply, err := json.Marshal((&guest{}).answer(agentRequest{Execute: "guest-info"}))
	if err != nil {
		t.Fatal(err)
	}
	for name := range agentCommands {
		if !bytes.Contains(reply, []byte(`"`+name+`"`)) {
			t.Errorf("guest-info does not list %s", name)
		}
	}
}

func TestFreezeWaitsForWritesAndHoldsNewOnes(t *testing.T) {
	var f freezer
	end := f.begin()
	var frozen sync.WaitGroup
	frozen.Go(func() {
		if err := f.freeze(); err != nil {
			t.Error(err)
		}
	})
	end()
	frozen.Wait()
	begun := make(chan struct{})
	go func() {
		f.begin()()
		close(begun)
	}()
	select {
	case <-begun:
		t.Error("a write began while frozen")
	default:
	}
	if !f.thaw() {
		t.Error("thaw found nothing frozen")
	}
	<-begun
}
