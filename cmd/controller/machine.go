package main

import (
	"context"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-vm/berth/internal/admission"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/backup"
	"github.com/berth-vm/berth/internal/controller/containervolume"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/export"
	"github.com/berth-vm/berth/internal/controller/installkeys"
	"github.com/berth-vm/berth/internal/controller/machine"
	"github.com/berth-vm/berth/internal/controller/machineclone"
	"github.com/berth-vm/berth/internal/controller/relocate"
	"github.com/berth-vm/berth/internal/controller/restore"
	"github.com/berth-vm/berth/internal/controller/schedule"
	"github.com/berth-vm/berth/internal/controller/snapshot"
	"github.com/berth-vm/berth/internal/controller/snapshot/agent"
	"github.com/berth-vm/berth/internal/controller/usageclass"
	"github.com/berth-vm/berth/internal/reach"
)

// setUpMachine adds the machine side: what runs machines, takes their snapshots, lets people download their disks, backs them up on schedules too, and the check at their door.
func setUpMachine(ctx context.Context, mgr ctrl.Manager, writer *cluster.Writer, records *diskaccess.Records, o options) error {
	rules, err := reach.Parse(o.networkDisks)
	if err != nil {
		return err
	}
	directories, err := diskstate.HostDirectories(o.hostDisks)
	if err != nil {
		return err
	}
	options := machine.Options{Image: o.launcher, Namespace: o.namespace, Emulate: o.emulate, Reach: rules, HostDirectories: directories}
	if err := machine.Setup(mgr, writer, records, options); err != nil {
		return err
	}
	if err := relocate.Setup(mgr, writer, records); err != nil {
		return err
	}
	volumes := installkeys.NewMaker(mgr.GetAPIReader(), writer, o.namespace, clock.RealClock{})
	if err := containervolume.Setup(mgr, writer, volumes, rules); err != nil {
		return err
	}
	if err := usageclass.Setup(mgr, writer); err != nil {
		return err
	}
	guests, err := agent.New(mgr.GetConfig())
	if err != nil {
		return err
	}
	if err := snapshot.Setup(mgr, writer, guests); err != nil {
		return err
	}
	if err := restore.Setup(mgr, writer, records); err != nil {
		return err
	}
	if err := machineclone.Setup(mgr, writer); err != nil {
		return err
	}
	if err := admission.SetupMachine(ctx, mgr, writer, o.namespace); err != nil {
		return err
	}
	if o.controllers != "machine" {
		// Exports are served by workers, which are the data side's: its image, and what the administrator says about them.
		launchers, err := backup.NewExec(mgr.GetConfig())
		if err != nil {
			return err
		}
		// So are backups written by them.
		if err := backup.Setup(mgr, writer, records, launchers, o.image); err != nil {
			return err
		}
		if err := schedule.Setup(mgr, writer, records, o.image); err != nil {
			return err
		}
		return export.Setup(mgr, writer, records, o.image) // the data side has the certificate made for both
	}
	return o.answer(ctx, mgr, writer, installkeys.Options{Services: []string{admission.Service}, Validating: []string{admission.ValidatingMachine}})
}
