package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/keep"
	"github.com/berth-vm/berth/internal/virtctl/status"
)

func (a *app) vm() *cobra.Command {
	create := a.createVM() // people try it this way round too
	create.Use, create.Hidden = "create"+strings.TrimPrefix(create.Use, "vm"), true
	return group(&cobra.Command{Use: "vm", Short: "Look at virtual machines, back them up, keep their disks, restore them, and have them leave a node"},
		a.vmStatus(), a.vmBackup(), a.vmKeep(), a.vmRestore(), a.vmEvacuate(), create)
}

func (a *app) vmStatus() *cobra.Command {
	var watch bool
	var output format
	cmd := &cobra.Command{
		Use: "status VM", Short: "Show a virtual machine, its disks and what they wait for",
		Long: "Show a virtual machine as a tree: its disks, their claims and nodes, and the pods that work on them, each with its\n" +
			"phase, its progress, and what it waits for since when; and its backups: what records changes, the last one, and schedules with the next.",
		Example: a.examples(`
  # Why does machine web not run?
  virtctl vm status web

  # Follow it
  virtctl vm status web --watch`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(machines),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			switch {
			case watch && output != "":
				return errors.New("--watch is for people, and --output for programs: use one of them")
			case output != "":
				seen, err := status.Read(cmd.Context(), c, args[0])
				if err != nil {
					return err
				}
				return output.write(a.out, seen.Tree())
			case watch:
				return status.Watch(cmd.Context(), c, args[0], a.out)
			}
			return status.Show(cmd.Context(), c, args[0], a.out)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again whenever it changes, until ctrl-c")
	output.bind(cmd)
	return cmd
}

func (a *app) vmKeep() *cobra.Command {
	o := keep.Options{Wait: true}
	cmd := &cobra.Command{
		Use: "keep VM DISK --as CLAIM", Short: "Keep a running virtual machine's copy of a disk in a claim of its own",
		Long: "Write a running virtual machine's own copy of a disk, which would be gone with it, to a claim that is made for it. The guest\n" +
			"goes on meanwhile; the claim has the disk as it is at the end, with everything it had from its master. A machine that is\n" +
			"deleted while its disk is being written is stopped after that.",
		Example: a.examples(`
  # Keep the disk root of machine web
  virtctl vm keep web root --as web-root

  # ... on another class, and do not wait for it
  virtctl vm keep web root --as web-root --storage-class=slow --wait=false`),
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.names(machines),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Machine, o.Disk = args[0], args[1]
			c, err := a.client()
			if err != nil {
				return err
			}
			return keep.Run(cmd.Context(), c, o, a.out)
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Claim.Name, "as", "", "name of the claim that is made")
	s.StringVar(&o.Claim.Size, "size", "", "size of the claim; just enough for the disk if it is empty")
	s.StringVar(&o.Claim.Class, "storage-class", "", "storage class of the claim")
	s.StringSliceVar(&o.Claim.AccessModes, "access-mode", nil, "access modes of the claim, like ReadWriteOnce")
	s.StringVar(&o.Claim.VolumeMode, "volume-mode", "", "Filesystem or Block")
	s.BoolVar(&o.Wait, "wait", true, "wait until the claim has the disk")
	_ = cmd.MarkFlagRequired("as") // the flag exists
	return cmd
}
