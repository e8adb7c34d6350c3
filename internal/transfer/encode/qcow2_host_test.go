//go:build host

package encode

import (
	"io"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestQCOW2: qemu-img finds nothing wrong with an image, and the disk in it is the disk.
func TestQCOW2(t *testing.T) {
	for name, d := range disks {
		if name == "nothing" {
			continue // qemu-img compares no empty disks
		}
		t.Run(name, func(t *testing.T) {
			i, err := QCOW2(t.Context(), d())
			if err != nil {
				t.Fatal(err)
			}
			image, err := io.ReadAll(io.NewSectionReader(i, 0, i.Size()))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			raw, made := filepath.Join(dir, "raw"), filepath.Join(dir, "qcow2")
			put(t, raw, whole(t, d()))
			put(t, made, image)
			for _, args := range [][]string{{"check", "-f", "qcow2", made}, {"compare", "-f", "raw", "-F", "qcow2", raw, made}} {
				if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
					t.Errorf("qemu-img %v: %v\n%s", args, err, out)
				}
			}
		})
	}
}
