//go:build host

package decode

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// disk returns a stretch of data as disks have it: programs, holes, noise and text.
func disk(t *testing.T) []byte {
	t.Helper()
	var p []byte
	for _, file := range []string{"/usr/bin/bash", "/usr/bin/xz", "/usr/bin/qemu-img"} {
		q, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p = append(p, q...)
		p = append(p, make([]byte, 3<<20)...)
		p = append(p, noise(200000)...)
	}
	p = append(p, tiled(3<<20)...)
	return append(p, sample(1<<20)...)
}

// What the real programs write is read back, whatever their options.
func TestRealPrograms(t *testing.T) {
	want := disk(t)
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, want, 0o644); err != nil {
		t.Fatal(err)
	}
	for kind, commands := range map[Kind][]string{
		Gzip: {
			"gzip -1", "gzip -6", "gzip -9 -N", "pigz -1", "pigz -6", "pigz -9", "pigz -i -b 128", "pigz -H", "pigz -R",
			"sh -c 'gzip -c $0; pigz -c $0'",
		},
		Xz: {
			"xz -0", "xz -6 -T2", "xz -3 -T2 --block-size=1MiB", "xz -1 -T1 --block-size=777777 -C sha256",
			"xz -1 -C crc32 --lzma2=preset=1,lc=1,lp=3,pb=1", "xz -2 -C none --lzma2=preset=2,dict=64KiB",
		},
		Zstd: {
			"zstd -1", "zstd -3", "zstd -9", "zstd -19", "zstd --fast=5", "zstd -3 -T2", "zstd --no-check", "zstd -3 --long=24",
			"zstd -3 -B65536 -T2", "zstd --rsyncable -T2",
		},
	} {
		for _, command := range commands {
			src := compressed(t, command, file)
			if got := Detect(src); got != kind {
				t.Errorf("%s is taken for %q", command, got)
			}
			got, err := all(t, kind, src, Options{})
			times := strings.Count(command, "$0")
			if times == 0 {
				times = 1
			}
			if err != nil || !bytes.Equal(got, bytes.Repeat(want, times)) {
				t.Errorf("%s: %d bytes, %v; want %d", command, len(got), err, len(want)*times)
			}
		}
	}
}

func compressed(t *testing.T, command, file string) []byte {
	t.Helper()
	script := command + ` -c "$0"`
	if rest, ok := strings.CutPrefix(command, "sh -c '"); ok {
		script = strings.TrimSuffix(rest, "'")
	}
	cmd := exec.Command("sh", "-c", script, file)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return out
}
