package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-vm/berth/internal/launcher/agent"
	"github.com/berth-vm/berth/internal/launcher/backup"
	"github.com/berth-vm/berth/internal/launcher/moments"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcher/requests"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// newMoments returns what holds the disks of a guest for backups.
func (l *Launcher) newMoments(qemu *qmp.Monitor, r *requests.Server) *moments.Keeper {
	return moments.New(moments.Guest{
		QEMU: qemu, Disks: func() (map[string]moments.Disk, error) { return l.heldDisks(qemu) }, Dir: launcherapi.StateDir, Log: l.Log,
		Freeze: func() error { return quietly(r.Freezer.Do(launcherapi.FreezeVerb)) },
		Thaw:   func() error { return quietly(r.Freezer.Do(launcherapi.ThawVerb)) },
		Still: func() (func(), bool) {
			if l.moves.Busy() || !l.moves.Still.TryLock() {
				return nil, false
			}
			l.backedUp.Store(true)
			return func() {
				l.backedUp.Store(false)
				l.moves.Still.Unlock()
			}, true
		},
		Alone: r.Pauser.Alone,
	})
}

// quietly returns an error if the guest's agent did not do what it was asked to.
func quietly(q launcherapi.Quiet) error {
	switch {
	case q.Agent:
		return nil
	case q.Detail == "":
		return agent.ErrNoAgent
	}
	return errors.New(q.Detail)
}

// heldDisks are the disks of the guest with QEMU's names for them. Those of copies are left out: what QEMU has open is their upper layer.
func (l *Launcher) heldDisks(qemu *qmp.Monitor) (map[string]moments.Disk, error) {
	answer, err := qemu.Run("query-block", nil)
	if err != nil {
		return nil, err
	}
	var all []struct {
		Device   string `json:"qdev"`
		Inserted struct {
			Node   string `json:"node-name"`
			Driver string `json:"drv"`
			Image  struct {
				Size int64 `json:"virtual-size"`
			} `json:"image"`
		} `json:"inserted"`
	}
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, fmt.Errorf("read QEMU's list of drives: %w", err)
	}
	var targets map[string]string
	if d := l.described.Load(); d != nil {
		targets = d.Targets
	}
	out := map[string]moments.Disk{}
	for _, d := range all {
		volume, ok := qmp.VolumeOf(d.Device)
		if !ok || d.Inserted.Node == "" || d.Inserted.Driver == "qcow2" {
			continue
		}
		out[volume] = moments.Disk{Target: targets[volume],
			Disk: backup.Disk{Volume: volume, Node: d.Inserted.Node, Device: d.Device, Size: d.Inserted.Image.Size}}
	}
	return out, nil
}

// backupMoment carries out an order about a backup.
func backupMoment(held *moments.Keeper, line string) (launcherapi.BackupMoment, error) {
	o, err := launcherapi.ReadBackupOrder(line)
	if err != nil {
		return launcherapi.BackupMoment{}, fmt.Errorf("read the order: %w", err)
	}
	return held.Do(context.Background(), o)
}
