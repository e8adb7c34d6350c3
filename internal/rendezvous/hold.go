package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/berth-vm/berth/internal/diskspace"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Holder keeps a claim in use for a launcher of another pod and hands it the disk.
type Holder struct {
	Volume   string
	ReadOnly bool
	Empty    int64 // the size of the disk to make in a directory that has none; 0: none is made
	Login    bool  // the disk is at a server, and what is handed over is what is needed to log in there
	ready    atomic.Bool
}

// Ready reports whether the guest has the disk.
func (h *Holder) Ready() bool { return h.ready.Load() }

// Hold opens the disk and hands it over as often as a launcher is introduced, until the guest has given it back or ctx
// ends. A launcher that cannot take it is an error.
func (h *Holder) Hold(ctx context.Context) error {
	disk, device, err := h.open()
	if err != nil {
		return err
	}
	defer func() { _ = closeAll(disk) }()
	meetings := make(chan *net.UnixConn)
	var busy sync.Mutex // held while a launcher has the disk or is being asked
	l, err := Serve(launcherapi.MeetDir, func(c *net.UnixConn) bool {
		if !busy.TryLock() {
			return false
		}
		select {
		case meetings <- c:
			return true
		case <-ctx.Done():
			return false
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	for {
		select {
		case c := <-meetings:
			released, err := h.handOver(ctx, c, disk, device)
			if released || err != nil {
				return err
			}
			busy.Unlock() // the launcher is gone; there may be another
		case <-ctx.Done():
			return nil
		}
	}
}

// handOver gives a launcher the disk and stays until it is released or the launcher is gone.
func (h *Holder) handOver(ctx context.Context, c *net.UnixConn, disk []*os.File, device bool) (released bool, err error) {
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer h.ready.Store(false)
	if err := SendOffer(c, Offer{Volume: h.Volume, Device: device, ReadOnly: h.ReadOnly, Login: h.Login}, disk...); err != nil {
		return false, nil //nolint:nilerr // gone before it began
	}
	for {
		a, err := ReceiveAnswer(c)
		switch {
		case err != nil:
			return false, nil //nolint:nilerr // it is gone; the next one is waited for
		case a.Refused != "":
			return false, errors.New(a.Refused)
		case a.Released:
			return true, nil
		}
		h.ready.Store(a.Attached)
	}
}

// open opens the disk the way the guest will have it, and once more read-only: QEMU takes a file it is handed only as it was
// opened, and opens a disk read-only before it opens it for writing.
func (h *Holder) open() (files []*os.File, device bool, err error) {
	f, device, err := h.openFirst()
	if err != nil {
		return nil, false, err
	}
	if h.Login || h.ReadOnly {
		return []*os.File{f}, device, nil
	}
	again, err := os.Open(f.Name())
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("open the disk for reading: %w", err), f.Close())
	}
	return []*os.File{f, again}, device, nil
}

func (h *Holder) openFirst() (f *os.File, device bool, err error) {
	if h.Login {
		f, err = packLogin(filepath.Join(launcherapi.MountDir, h.Volume))
		return f, false, err
	}
	mode := os.O_RDWR
	if h.ReadOnly {
		mode = os.O_RDONLY
	}
	f, err = os.OpenFile(filepath.Join(launcherapi.BlockDir, h.Volume), mode, 0)
	if err == nil {
		return f, true, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, false, fmt.Errorf("open the device: %w", err)
	}
	path := filepath.Join(launcherapi.FilesDir, h.Volume, "disk.img")
	f, err = os.OpenFile(path, mode, 0)
	if errors.Is(err, os.ErrNotExist) && h.Empty > 0 && !h.ReadOnly {
		if f, err = os.OpenFile(path, mode|os.O_CREATE|os.O_EXCL, 0o660); err == nil {
			err = diskspace.Size(f, h.Empty)
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("the claim has no disk.img that can be opened; fill it through a DataVolume or put a raw image there: %w", err)
	}
	return f, false, nil
}
