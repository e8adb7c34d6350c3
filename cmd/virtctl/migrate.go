package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/evacuate"
	"github.com/berth-vm/berth/internal/virtctl/machine"
)

// breaks is the warning of all commands that move a guest.
const breaks = "Connections that are open to the guest, or from it, through its pod's network break when it moves; new ones can be opened at once."

func (a *app) migrate() *cobra.Command {
	var o kubevirt.MigrateOptions
	var dryRun bool
	cmd := &cobra.Command{
		Use: "migrate VM", Short: "Migrate a virtual machine",
		Long: "Move the guest of a running virtual machine to another node, with its memory and its disks. It runs on until it is there and\n" +
			"stands still for a moment then; its addresses, as it sees them itself, stay.\n\n" + breaks + "\n\n" +
			"The disks of a machine that is stopped are copied to another node if they are on one alone. It can be started after that.",
		Example: a.examples(`
  # Move machine web to the node that the scheduler finds best
  virtctl migrate web

  # ... to one with this label
  virtctl migrate web --addedNodeSelector=disktype=ssd

  # How far is it?
  kubectl get vmim`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(machines),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.DryRun = a.dryRun(dryRun)
			c, err := a.client()
			if err != nil {
				return err
			}
			if err := machine.Migrate(cmd.Context(), c, args[0], o); err != nil {
				return fmt.Errorf("Error migrating VirtualMachine %w", err)
			}
			_, _ = fmt.Fprintln(a.err, breaks)
			_, err = fmt.Fprintf(a.out, "VM %s was scheduled to migrate\n", args[0])
			return err
		},
	}
	cmd.Flags().StringToStringVar(&o.AddedNodeSelector, "addedNodeSelector", nil,
		"labels that the new node must have besides those that the machine asks for, like key=value,key2=value2")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "have the request checked and change nothing")
	return cmd
}

func (a *app) migrateCancel() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "migrate-cancel VM", Short: "Cancel migration of a virtual machine",
		Long: "Cancel the migration of a virtual machine: its guest stays where it is. One whose guest has left already goes on.",
		Example: a.examples(`
  # Keep machine web where it is
  virtctl migrate-cancel web`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(machines),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if err := machine.CancelMigration(cmd.Context(), c, args[0], a.dryRun(dryRun)); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "VM %s was scheduled to migrate-cancel\n", args[0])
			return err
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "have the request checked and change nothing")
	return cmd
}

// dryRun returns the option as the API takes it.
func (a *app) dryRun(wanted bool) []string {
	if !wanted {
		return nil
	}
	_, _ = fmt.Fprintln(a.out, "Dry Run execution")
	return []string{"All"}
}

func (a *app) vmEvacuate() *cobra.Command {
	o := evacuate.Options{Cordon: true}
	var selector string
	var cancel bool
	cmd := &cobra.Command{
		Use: "evacuate NODE", Short: "Move all virtual machines away from a node",
		Long: "Have every virtual machine leave a node, as kubectl drain does for all pods, and show how far each is. The node takes no new\n" +
			"pods from then on. Machines that would be shut down (evictionStrategy None, or LiveMigrateIfPossible for one that cannot move)\n" +
			"stay, and are named. What was begun goes on if the command is interrupted.\n\n" + breaks,
		Example: a.examples(`
  # Empty node worker-1 for an upgrade
  virtctl vm evacuate worker-1
  kubectl drain worker-1 --ignore-daemonsets --delete-emptydir-data

  # ... and shut down what cannot move
  virtctl vm evacuate worker-1 --shut-down

  # Keep the machines that have not left yet
  virtctl vm evacuate worker-1 --cancel`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Node = args[0]
			var err error
			if o.Selector, err = labels.Parse(selector); err != nil {
				return misused(cmd, fmt.Errorf("--selector: %w", err))
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if cancel {
				return evacuate.Cancel(cmd.Context(), c, o, a.out)
			}
			return evacuate.Run(cmd.Context(), c, o, a.out)
		},
	}
	s := cmd.Flags()
	s.BoolVar(&o.Cordon, "cordon", true, "mark the node so that it takes no new pods")
	s.StringVarP(&selector, "selector", "l", "", "only machines whose instances have these labels, like team=web")
	s.BoolVar(&cancel, "cancel", false, "end the migrations that were begun to empty the node, and keep the machines that are still there")
	s.BoolVar(&o.ShutDown, "shut-down", false, "shut machines down that are not to be moved or cannot be")
	s.DurationVar(&o.Timeout, "timeout", 0, "give up waiting after this time, like 30m; 0 waits for ever")
	return cmd
}
