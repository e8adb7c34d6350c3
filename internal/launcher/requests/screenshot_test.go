package requests

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-vm/berth/internal/testing/qmptest"
)

// leaves is a screen whose QEMU leaves something where it was told to write a picture.
func leaves(t *testing.T, leave func(path string) error) *screen {
	t.Helper()
	return &screen{dir: t.TempDir(), qemu: qmptest.Fake(t, func(command string, arguments json.RawMessage) (string, bool) {
		if command == "qmp_capabilities" {
			return `{"return": {}}`, false
		}
		var to struct{ Filename string }
		if err := json.Unmarshal(arguments, &to); err != nil || command != "screendump" {
			t.Errorf("QEMU is told to %s %s", command, arguments)
		}
		if err := leave(to.Filename); err != nil {
			t.Error(err)
		}
		return `{"return": {}}`, true
	})}
}

func writes(text string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
}

// TestPicture: the pixels of QEMU's file become a PNG, and the file goes.
func TestPicture(t *testing.T) {
	s := leaves(t, writes("P6\n2 1\n255\n\xff\x00\x00\x01\x02\x03"))
	p, err := s.take()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	var out bytes.Buffer
	if err := p.encode(&out); err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(&out)
	if err != nil {
		t.Fatal(err)
	}
	red, _, blue, _ := picture.At(0, 0).RGBA()
	if r, g, b, _ := picture.At(1, 0).RGBA(); picture.Bounds().Dx() != 2 || picture.Bounds().Dy() != 1 || red != 0xffff || blue != 0 || r>>8 != 1 || g>>8 != 2 || b>>8 != 3 {
		t.Errorf("%v with %v and %v", picture.Bounds(), picture.At(0, 0), picture.At(1, 0))
	}
	if left, _ := os.ReadDir(s.dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestHostilePicture: what a QEMU that the guest took over leaves is no picture, and nothing is allocated or waited for because of it.
func TestHostilePicture(t *testing.T) {
	for name, leave := range map[string]func(string) error{
		"nothing":              func(string) error { return nil },
		"an empty file":        writes(""),
		"another kind":         writes("P5\n1 1\n255\nx"),
		"many pixels":          writes("P6\n100000 100000\n255\n"),
		"numbers that wrap":    writes("P6\n4294967296 4294967296\n255\n"),
		"a negative size":      writes("P6\n-1 -1\n255\nxxx"),
		"no size":              writes("P6\n0 5\n255\n"),
		"two bytes a colour":   writes("P6\n1 1\n65535\nxxxxxx"),
		"too few pixels":       writes("P6\n2 2\n255\nxxx"),
		"too many pixels":      writes("P6\n1 1\n255\nxxxxxx"),
		"a header without end": writes("P6\n" + strings.Repeat("1", 1<<16)),
		"a link":               func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a pipe":               func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a directory":          func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		s := leaves(t, leave)
		if p, err := s.take(); err == nil {
			t.Errorf("%s is a picture of %v", name, p.Bounds())
		}
		if _, err := os.Lstat(filepath.Join(s.dir, "screenshot.ppm")); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}
