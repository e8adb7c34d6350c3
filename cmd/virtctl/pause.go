package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/forward"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/machine"
)

func (a *app) pause() *cobra.Command {
	return a.freeze("pause", "Pause a virtual machine", "Stop the processors of a virtual machine. Its memory is kept, and it stays where it is.", "Pause machine web", machine.Pause)
}

func (a *app) unpause() *cobra.Command {
	return a.freeze("unpause", "Unpause a virtual machine", "Let a virtual machine go on that was paused.", "Let machine web go on", machine.Unpause)
}

func (a *app) freeze(verb, short, long, example string, do func(context.Context, *kube.Client, string, machine.Change) error) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: verb + " (vm|vmi) NAME", Short: short, Long: long, Example: a.examples(`
  # ` + example + `
  virtctl ` + verb + ` vm web`),
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.kinds(),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name := forward.Kind(args[0]), args[1]
			if kind == "" {
				return misused(cmd, fmt.Errorf("unsupported resource type '%s'", args[0]))
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			var change machine.Change
			if dryRun {
				change.DryRun = []string{"All"}
				_, _ = fmt.Fprintln(a.out, "Dry Run execution")
			}
			err = do(cmd.Context(), c, name, change)
			if apierrors.IsNotFound(err) && kind == "vm" {
				err = absent(cmd.Context(), c, name, err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "VMI %s was scheduled to %s\n", name, verb)
			return err
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "have the request checked and change nothing")
	return cmd
}

// absent returns what is missing of a machine that has no instance.
func absent(ctx context.Context, c *kube.Client, name string, err error) error {
	m, readErr := kube.Machines.Get(ctx, c, name)
	switch {
	case readErr != nil:
		return readErr
	case m == nil:
		return fmt.Errorf("there is no VM %s/%s", c.Namespace, name)
	case m.Spec.Strategy() == kubevirt.RunHalted:
		return fmt.Errorf("VirtualMachine %s is not set to run", name)
	}
	return err
}
