package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/machine"
)

// change is a verb that starts or stops a machine.
type change struct {
	verb, short, example string
	force                bool // it takes a grace period
	pause                bool // it can leave the guest paused
	do                   func(context.Context, *kube.Client, string, machine.Change) error
}

func (a *app) start() *cobra.Command {
	return a.change(change{
		verb: "start", short: "Start a virtual machine", do: machine.Start, pause: true, example: `
  # Start the machine web
  virtctl start web

  # ... and have its guest stand still until virtctl unpause vm web
  virtctl start web --paused`,
	})
}

// change returns the command of a verb that starts or stops a machine.
func (a *app) change(c change) *cobra.Command {
	var request machine.Change
	var force, dryRun bool
	grace := int64(-1)
	cmd := &cobra.Command{
		Use: c.verb + " VM", Short: c.short, Example: a.examples(c.example),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(machines),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.force && force != (grace >= 0) {
				return errors.New("Must both use --force=true and set --grace-period.") //nolint:revive,staticcheck // the text clients know
			}
			if grace >= 0 {
				request.GracePeriod = &grace
			}
			if dryRun {
				request.DryRun = []string{"All"}
				_, _ = fmt.Fprintln(a.out, "Dry Run execution")
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			if err := c.do(cmd.Context(), client, args[0], request); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "VM %s was scheduled to %s\n", args[0], c.verb)
			return err
		},
	}
	s := cmd.Flags()
	s.BoolVar(&dryRun, "dry-run", false, "have the request checked and change nothing")
	if c.pause {
		s.BoolVar(&request.Paused, "paused", false, "start the machine in paused state")
	}
	if c.force {
		s.BoolVar(&force, "force", false, "end the guest after --grace-period, whatever its machine says")
		s.Int64Var(&grace, "grace-period", -1, "how many seconds the guest may take to shut down; needs --force")
	}
	return cmd
}
