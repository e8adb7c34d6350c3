package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/berth-vm/berth/internal/launcher/remote"
)

// logIn logs in at the servers of the network disks that the machine names by address, and reports the servers' addresses. The controller
// enters the launcher into the access records of these disks by the addresses, because several names can lead to one server; the guest gets
// the disks after that.
func (l *Launcher) logIn(ctx context.Context, task string) error {
	m, err := readMachine(task)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it will come together with the go file, so there is nothing to do yet
	}
	if err != nil || !m.LogIn {
		return err
	}
	r, err := remote.New(m)
	if err != nil {
		return err
	}
	defer r.Close()
	at := map[string][]string{}
	for _, v := range m.Spec.Volumes {
		if _, direct := m.Direct[v.Name]; direct || !v.AtServer() {
			continue
		}
		if at[v.Name], err = r.LogIn(ctx, m, v); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	l.servers.Store(&at)
	return nil
}
