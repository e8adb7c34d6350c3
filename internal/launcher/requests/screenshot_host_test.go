//go:build host

package requests

import (
	"bytes"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/testing/qmptest"
)

// redScreen is a boot sector that fills the screen with red and halts.
var redScreen = []byte{
	0xb8, 0x13, 0x00, 0xcd, 0x10, // 320 by 200 pixels of one byte
	0xb8, 0x00, 0xa0, 0x8e, 0xc0, 0x31, 0xff, // from the beginning of the screen
	0xb0, 0x04, 0xb9, 0x00, 0xfa, 0xf3, 0xaa, // 64000 pixels of colour 4
	0xf4, 0xeb, 0xfd,
}

// TestScreenshot: what a real QEMU shows is in the picture, with red and blue where they belong, also after the pointer was moved.
func TestScreenshot(t *testing.T) {
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	sector := append(append(redScreen, make([]byte, 510-len(redScreen))...), 0x55, 0xaa)
	if err := os.WriteFile(disk, append(sector, make([]byte, 1<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("qemu-system-x86_64", "-nodefaults", "-machine", "pc", "-display", "none", "-vga", "std", "-m", "64",
		"-drive", "format=raw,file="+disk, "-qmp", "unix:"+filepath.Join(dir, "monitor")+",server=on,wait=off")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s := &screen{qemu: qmptest.Await(t, filepath.Join(dir, "monitor")), dir: dir}
	s.movePointer()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		p, err := s.take()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = p.encode(&out)
		p.close()
		if err != nil {
			t.Fatal(err)
		}
		picture, err := png.Decode(&out)
		if err != nil {
			t.Fatal(err)
		}
		r, g, b, _ := picture.At(picture.Bounds().Dx()/2, picture.Bounds().Dy()/2).RGBA()
		if r > 0x8000 && g == 0 && b == 0 {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("the screen of %v shows %d, %d, %d", picture.Bounds(), r, g, b)
		}
	}
}
