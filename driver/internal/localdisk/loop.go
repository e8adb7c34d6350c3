package localdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// loopMajor is the major number of loop devices, fixed since 1993.
const loopMajor = 7

// loopTries bounds how often a free loop device is looked for while others take them first.
const loopTries = 100

// sysBlock is where the kernel shows its block devices.
const sysBlock = "/sys/block"

// loop is an open loop device of an image. Its user closes it; closing does not detach a device that is mounted or kept.
type loop struct {
	file   *os.File
	minor  int
	direct bool // does its I/O past the page cache
}

func (l *loop) path() string { return loopPath(l.minor) }

func (l *loop) number() string { return fmt.Sprintf("%d:%d", loopMajor, l.minor) }

func (l *loop) close() { _ = l.file.Close() } // opened to ask the kernel; nothing was written through it

func loopPath(minor int) string { return fmt.Sprintf("/dev/loop%d", minor) }

// attached returns the loop device of a volume's image, nil if it has none. It is looked up by the file's identity: paths in
// sysfs are those of whichever mount namespace attached it, and only their ends can be relied on.
func (p *pool) attached(i id) (*loop, error) {
	tail := filepath.Join(dirVolumes, i.key, fileImage)
	minors, err := loopsOver(func(backing string) bool { return strings.HasSuffix(backing, "/"+tail) })
	if err != nil || len(minors) == 0 {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat(p.image(i), &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, p.present()
		}
		return nil, &fs.PathError{Op: "stat", Path: p.image(i), Err: err}
	}
	for _, minor := range minors {
		dev, err := openLoop(minor, st.Dev, st.Ino)
		if err != nil || dev != nil {
			return dev, err
		}
	}
	return nil, nil
}

// loopsOver lists the minor numbers of loop devices whose backing file is wanted.
func loopsOver(wanted func(backing string) bool) ([]int, error) {
	paths, err := filepath.Glob(sysBlock + "/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var minors []int
	for _, path := range paths {
		backing, err := os.ReadFile(path)
		if err != nil {
			continue // freed since
		}
		if !wanted(strings.TrimSuffix(strings.TrimSpace(string(backing)), " (deleted)")) {
			continue
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(path)))
		if minor, err := strconv.Atoi(strings.TrimPrefix(name, "loop")); err == nil {
			minors = append(minors, minor)
		}
	}
	return minors, nil
}

// openLoop opens a loop device if the file with this identity is behind it, else it returns nil.
func openLoop(minor int, device, inode uint64) (*loop, error) {
	f, err := os.OpenFile(loopPath(minor), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open loop device: %w", err)
	}
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil && !errors.Is(err, unix.ENXIO) { // ENXIO: freed since
		return nil, errors.Join(fmt.Errorf("ask %s for its file: %w", f.Name(), err), f.Close())
	}
	if err != nil || info.Device != device || info.Inode != inode {
		return nil, f.Close()
	}
	return &loop{file: f, minor: minor, direct: info.Flags&unix.LO_FLAGS_DIRECT_IO != 0}, nil
}

// attach gives a volume's image a loop device, or returns the one it has. A loop device for a filesystem is freed by the kernel
// when it is not open: the mount keeps it, and without a mount closing it frees it. One for a block volume is kept by its
// attachment alone, for a device node can be mounted into a pod without being open.
func (p *pool) attach(v *disk) (*loop, error) {
	dev, err := p.attached(v.id)
	if err != nil {
		return nil, err
	}
	if dev == nil {
		if dev, err = p.configure(v); err != nil {
			return nil, err
		}
		p.reached("attach: device")
	}
	if err := p.fit(dev, v); err != nil {
		dev.close()
		return nil, err
	}
	return dev, nil
}

// fit makes a device as large as its image is now, and keeps the blocks of a preallocated image.
func (p *pool) fit(dev *loop, v *disk) error {
	if err := unix.IoctlSetInt(int(dev.file.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("resize %s: %w", dev.path(), err)
	}
	if !v.Preallocated {
		return nil
	}
	knob := fmt.Sprintf("%s/loop%d/queue/discard_max_bytes", sysBlock, dev.minor)
	if err := os.WriteFile(knob, []byte("0"), 0); err != nil {
		return fmt.Errorf("turn off discard of %s: %w", dev.path(), err)
	}
	return nil
}

// configure finds a free loop device and puts an image behind it.
func (p *pool) configure(v *disk) (*loop, error) {
	image, err := os.OpenFile(p.image(v.id), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open loop control: %w", err)
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_DIRECT_IO}}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], v.id.key)
	if v.Mode == modeFilesystem {
		config.Info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	for range loopTries {
		minor, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		dev, err := os.OpenFile(loopPath(minor), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("open loop device: %w", err)
		}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return p.configured(dev, minor)
		}
		if err = errors.Join(err, dev.Close()); !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach %s to %s: %w", image.Name(), loopPath(minor), err)
		}
	}
	return nil, fmt.Errorf("attach %s: every loop device was taken by somebody else, %d times", image.Name(), loopTries)
}

// configured reports what the kernel made of the request for direct I/O: it silently goes without where it cannot.
func (p *pool) configured(f *os.File, minor int) (*loop, error) {
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask %s for its state: %w", f.Name(), err), f.Close())
	}
	dev := &loop{file: f, minor: minor, direct: info.Flags&unix.LO_FLAGS_DIRECT_IO != 0}
	if !dev.direct {
		p.log.Warn("the pool's filesystem has no direct I/O: volumes go through the page cache", "device", dev.path())
	}
	return dev, nil
}

// detach frees the device; if it is open elsewhere, the kernel frees it when it is closed.
func (l *loop) detach() error {
	err := unix.IoctlSetInt(int(l.file.Fd()), unix.LOOP_CLR_FD, 0)
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", l.path(), err)
	}
	return nil
}
