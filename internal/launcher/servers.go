package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/nbd"
	"github.com/berth-vm/berth/internal/netdisk"
)

// logIn logs in at the servers of the network disks that the machine names by their addresses, and keeps where that was. The guest has none
// of these disks before the controller has entered the launcher among their holders, and it does so by the servers: a name alone keeps
// nobody from a disk.
func (l *Launcher) logIn(ctx context.Context, task string) error {
	m, err := readMachine(task)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it comes with the word to go, so there is nothing to do before
	}
	if err != nil || !m.LogIn {
		return err
	}
	r, err := newRemotes(m)
	if err != nil {
		return err
	}
	defer r.close()
	at := map[string][]string{}
	for _, v := range m.Spec.Volumes {
		if _, direct := m.Direct[v.Name]; direct || !v.AtServer() {
			continue
		}
		if at[v.Name], err = r.logIn(ctx, m, v); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	l.servers.Store(&at)
	return nil
}

// logIn opens one disk and closes it, and returns the addresses of its servers.
func (r *remotes) logIn(ctx context.Context, m launcherapi.Machine, v kubevirt.Volume) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, opening)
	defer cancel()
	b, err := r.backing(ctx, m, v)
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

// askNBD asks a server about an export without opening it: a server for one client, or for one connection, would be lost to the guest.
func (r *remotes) askNBD(ctx context.Context, at *backing.Remote) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Servers[0].String())
	if err != nil {
		return &faulty{launcherapi.DiskUnreachable, err}
	}
	defer func() { _ = conn.Close() }()
	if by, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(by) // without it the server has all the time it wants
	}
	switch err := nbd.Ask(conn, at.Name); {
	case errors.Is(err, nbd.ErrNoExport):
		return &faulty{launcherapi.DiskAbsent, err}
	case errors.Is(err, nbd.ErrDenied):
		return &faulty{launcherapi.DiskDenied, err}
	case err != nil:
		return &faulty{launcherapi.DiskUnreachable, err}
	}
	return nil
}
