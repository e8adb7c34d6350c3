package localdisk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// release frees the loop device of a volume that is used no longer. A device that is mounted somewhere is in use; one that is only open
// goes when it is closed.
func (p *pool) release(i id) error {
	dev, err := p.attached(i)
	if err != nil || dev == nil {
		return err
	}
	defer dev.close()
	mounts, err := mountsOf(dev)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return p.mounted(i, dev, mounts[0].point, "")
	}
	return dev.detach()
}

// clear frees the loop device of a volume that is about to go, and takes away mounts that the kubelet forgot. It touches no mount as long as
// one of them may be needed, and it succeeds only when nothing on the node has the device open: a guest may outlive whatever knew of it.
func (p *pool) clear(ctx context.Context, i id) error {
	dev, err := p.attached(i)
	if err != nil || dev == nil {
		return err
	}
	defer dev.close()
	mounts, err := mountsOf(dev)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		why, err := whyKept(m.point, lookForPod)
		if err != nil {
			return err
		}
		if why != "" {
			return p.mounted(i, dev, m.point, why)
		}
	}
	if err := p.unlock(ctx, dev, mounts); err != nil {
		return err
	}
	for _, m := range mounts {
		p.log.Info("take away a mount that no pod uses", "volume", i.String(), "device", dev.path(), "path", m.point)
		err := p.takeAway(m.point)
		if errors.Is(err, unix.EBUSY) {
			return p.held(i, dev)
		}
		if err != nil {
			return err
		}
	}
	free, err := p.free(ctx, dev)
	if err == nil && !free {
		err = p.held(i, dev)
	}
	return err
}

// takeAway removes a mount that is not needed. The path of a pod is removed too; a staging path is the kubelet's.
func (p *pool) takeAway(point string) error {
	if stagingMount.MatchString(point) {
		return unmount(point)
	}
	return p.unpublish(point)
}

// unlock frees the kubelet's own loop devices on top of a device, for pods that are gone. The kubelet makes one for each pod to keep the
// device there; until it is freed, the device is open and the mount at which it was opened is busy.
func (p *pool) unlock(ctx context.Context, dev *loop, left []mount) error {
	minors, err := loopsOver(func(backing string) bool {
		pod := podOf(backing)
		return pod != "" && slices.ContainsFunc(left, func(m mount) bool { return podOf(m.point) == pod })
	})
	if err != nil {
		return err
	}
	for _, minor := range minors {
		lock, err := openLock(minor, dev)
		if err != nil {
			return err
		}
		if lock == nil {
			continue
		}
		p.log.Info("free the kubelet's hold on a device that no pod uses", "device", dev.path(), "hold", lock.path())
		_, err = p.free(ctx, lock) // one that is not free keeps the device, which is looked at last
		lock.close()
		if err != nil {
			return err
		}
		p.reached("unlock: freed")
	}
	return nil
}

// openLock opens a loop device if it is on top of another, else it returns nil.
func openLock(minor int, under *loop) (*loop, error) {
	f, err := os.OpenFile(loopPath(minor), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open loop device: %w", err)
	}
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil && !errors.Is(err, unix.ENXIO) { // ENXIO: freed since
		return nil, errors.Join(fmt.Errorf("ask %s for its file: %w", f.Name(), err), f.Close())
	}
	if err != nil || info.Rdevice != unix.Mkdev(loopMajor, uint32(under.minor)) {
		return nil, f.Close()
	}
	return &loop{file: f, minor: minor}, nil
}

// patience is how long a device may be open without being in use: who looks at every block device of the machine, as udev and `mount -o loop`
// do, has it open for a moment. Deleting is tried again for ever, so more patience would only delay the answer.
const patience = 5 * time.Second

// free detaches a device and reports whether it is detached. It is not as long as another process has the device open, or a
// filesystem on it mounted, in whatever namespace; then the kernel detaches it after the last of them, and keeps the image until
// then.
func (p *pool) free(ctx context.Context, l *loop) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := l.detach(); err != nil {
			return false, err
		}
		_, err := unix.IoctlLoopGetStatus64(int(l.file.Fd()))
		if errors.Is(err, unix.ENXIO) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("ask %s for its state: %w", l.path(), err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, nil
		}
	}
}

func (p *pool) mounted(i id, dev *loop, point, why string) error {
	if why != "" {
		why = ": " + why
	}
	return status.Errorf(codes.FailedPrecondition, "volume %s is in use on node %s: %s is mounted at %s%s", i, p.Node, dev.path(), point, why)
}

func (p *pool) held(i id, dev *loop) error {
	return status.Errorf(codes.FailedPrecondition, "volume %s is in use on node %s: no pod has it, but something still has %s open or mounted. "+
		"On the node, `fuser -v %s` and `grep -l ' %s ' /proc/[0-9]*/mountinfo` name it; when it has ended, the volume is deleted",
		i, p.Node, dev.path(), dev.path(), dev.number())
}
