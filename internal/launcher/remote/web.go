package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/nbd"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/reach"
	"github.com/berth-vm/berth/internal/task"
	blobs "github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/http"
)

// web opens a disk at a URL with Berth's own reader and serves it to QEMU at a socket of this pod. QEMU's driver for URLs hangs if two reads
// are in flight to some servers, knows no passwords, and connects to any server.
func (r *Disks) web(ctx context.Context, v kubevirt.Volume) (*backing.Remote, error) {
	mounted := r.mounted(v.Name)
	order := task.HTTP{URL: v.HTTP.URL}
	if v.HTTP.SecretRef != nil {
		order.CredentialsDir = filepath.Join(mounted, netdisk.CredentialsDir)
	}
	if len(v.HTTP.SecretHeaders) > 0 {
		order.HeadersDir = filepath.Join(mounted, netdisk.HeadersDir)
	}
	if v.HTTP.CertConfigMap != "" {
		order.CADir = filepath.Join(mounted, netdisk.CADir)
	}
	blob, err := http.OpenThrough(ctx, order, http.Dial(r.connector.dialer("http")))
	if err != nil {
		return nil, ClassifyWeb(err)
	}
	// The guest still reads while it shuts down, after ctx has ended.
	reading, stop := context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // stop is called with the other ends
	r.mu.Lock()
	r.closes[v.Name] = stop
	r.mu.Unlock()
	r.until(v.Name, stop, func() { _ = blob.Close() })
	disk, err := blobs.NewReaderAt(reading, blob)
	if err != nil {
		return nil, &Error{launcherapi.DiskAbsent, fmt.Errorf("%w; a disk at a URL needs a server that serves ranges and says the size", err)}
	}
	socket := filepath.Join(launcherapi.StateDir, v.Name+".nbd")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("serve the disk: %w", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("serve the disk: %w", err)
	}
	r.until(v.Name, func() { _ = l.Close() })
	go func() { _ = nbd.Serve(l, disk) }()
	return backing.OnSocket(socket), nil
}

// ClassifyWeb returns the error of a web server as a *faulty if a machine has a reason for it, and unchanged otherwise.
func ClassifyWeb(err error) error {
	fault := launcherapi.Fault("")
	var known *task.Error
	switch {
	case errors.Is(err, reach.ErrRefused):
		fault = launcherapi.DiskRefused
	case !errors.As(err, &known):
		return err
	case known.Reason == task.SourceDenied || known.Reason == task.SourceUntrusted:
		fault = launcherapi.DiskDenied
	case known.Reason == task.SourceNotFound:
		fault = launcherapi.DiskAbsent
	case known.Reason == task.SourceUnreachable || known.Reason == task.SourceUnavailable:
		fault = launcherapi.DiskUnreachable
	default:
		return err
	}
	return &Error{fault, err}
}
