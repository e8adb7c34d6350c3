package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/status"
)

func (a *app) vm() *cobra.Command {
	cmd := &cobra.Command{Use: "vm", Short: "Look at virtual machines"}
	cmd.AddCommand(a.vmStatus())
	return cmd
}

func (a *app) vmStatus() *cobra.Command {
	var watch bool
	var output format
	cmd := &cobra.Command{
		Use: "status VM", Short: "Show a virtual machine, its disks and what they wait for",
		Long: "Show a virtual machine as a tree: its disks, their claims and nodes, and the pods that work on them, each with its\n" +
			"phase, its progress, and what it waits for since when.",
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
