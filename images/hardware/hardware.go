//go:build linux

// Package hardware sets up the hardware of a guest for Berth's programs that are its process 1: drivers, network cards, the power
// button, ports to the host. The test guest's is images/guest/init, that of machines from container images is images/kernel/init.
package hardware

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// MountKernelFilesystems mounts what the kernel shows of itself.
func MountKernelFilesystems() error {
	for _, m := range []struct{ kind, dir string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", m.dir, err)
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.dir, err)
		}
	}
	return nil
}

// moduleList is where the builder of an initramfs lists its drivers.
const moduleList = "/modules"

// LoadModules loads the drivers that the builder listed, one path per line, each after those it depends on. One that cannot be loaded
// does not keep the others.
func LoadModules() []error {
	text, err := os.ReadFile(moduleList)
	if err != nil {
		return []error{fmt.Errorf("read the module list: %w", err)}
	}
	var errs []error
	for path := range strings.FieldsSeq(string(text)) {
		if err := loadModule(path); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open module: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", path, err)
	}
	return nil
}

// Port is the device of a virtio port, a line to the host; empty if the machine has none of that name.
func Port(called string) string {
	names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, name := range names {
		if ReadLine(name) == called {
			return "/dev/" + filepath.Base(filepath.Dir(name))
		}
	}
	return ""
}

// ReadLine is the first line of a small file, or "" if it cannot be read: sysfs files come and go with their devices.
func ReadLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}
