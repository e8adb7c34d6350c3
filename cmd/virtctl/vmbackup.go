package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/backup"
)

func (a *app) vmBackup() *cobra.Command {
	o := backup.Options{Wait: true}
	var output format
	cmd := &cobra.Command{
		Use: "backup VM --pvc CLAIM", Short: "Back up a virtual machine into a claim",
		Long: "Make a VirtualMachineBackup: write the disks of a virtual machine, as they are at one moment, into a claim, and tell what it waits for until it has\n" +
			"ended. With a tracker, only what changed since the tracker's last backup is written.",
		Example: a.examples(`
  # Write all disks of machine web into the claim backups
  virtctl vm backup web --pvc=backups

  # Only what changed since the last backup of the tracker daily
  virtctl vm backup web --pvc=backups --tracker=daily`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(machines),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Machine = args[0]
			c, err := a.client()
			if err != nil {
				return err
			}
			said := a.out
			if output != "" {
				said = io.Discard
			}
			made, err := backup.Run(cmd.Context(), c, o, said)
			if output != "" && made != nil {
				if wrong := output.write(a.out, made); wrong != nil {
					return wrong
				}
			}
			return err
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Claim, "pvc", "", "name of the PersistentVolumeClaim that the backup is written into")
	s.StringVar(&o.Name, "name", "", "name of the backup; one that begins with the machine's if it is empty")
	s.StringVar(&o.Tracker, "tracker", "", "name of a VirtualMachineBackupTracker of the machine; all data is written if it is empty")
	s.BoolVar(&o.Full, "full", false, "write all data, also if it was recorded what changed")
	s.BoolVar(&o.SkipQuiesce, "skip-quiesce", false, "do not have the guest's agent freeze its filesystems")
	s.BoolVar(&o.Wait, "wait", true, "wait until the backup has ended")
	_ = cmd.MarkFlagRequired("pvc") // the flag exists
	output.bind(cmd)
	return cmd
}
