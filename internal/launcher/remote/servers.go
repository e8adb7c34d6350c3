package remote

import (
	"context"
	"errors"
	"net"
	"slices"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/nbd"
	"github.com/berth-vm/berth/internal/netdisk"
)

// LogIn opens a disk, closes it, and returns the addresses of its servers.
func (r *Disks) LogIn(ctx context.Context, m launcherapi.Machine, v kubevirt.Volume) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	b, err := r.Open(ctx, m, v)
	if err != nil {
		return nil, err
	}
	if netdisk.Of(b.Remote.Protocol).OneClient && !b.Remote.TLS {
		err = r.askNBD(ctx, b.Remote)
	} else {
		err = r.probe(ctx, m, b, r.logins[v.Name])
	}
	if err != nil {
		return nil, err
	}
	var at []string
	for _, s := range b.Remote.Servers {
		at = append(at, s.String())
	}
	slices.Sort(at)
	return at, nil
}

// askNBD asks a server about an export without opening it: some servers serve one client, or one connection, which the guest then could not
// have.
func (r *Disks) askNBD(ctx context.Context, at *backing.Remote) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Servers[0].String())
	if err != nil {
		return &Error{launcherapi.DiskUnreachable, err}
	}
	defer func() { _ = conn.Close() }()
	if by, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(by) // without a deadline the server could take any time
	}
	switch err := nbd.Ask(conn, at.Name); {
	case errors.Is(err, nbd.ErrNoExport):
		return &Error{launcherapi.DiskAbsent, err}
	case errors.Is(err, nbd.ErrDenied):
		return &Error{launcherapi.DiskDenied, err}
	case err != nil:
		return &Error{launcherapi.DiskUnreachable, err}
	}
	return nil
}
