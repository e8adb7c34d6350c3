package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/forward"
	"github.com/berth-vm/berth/internal/virtctl/machine"
)

func (a *app) softReboot() *cobra.Command {
	return a.tell("soft-reboot", "softreboot", "soft rebooting", "Ask the guest of a virtual machine to reboot",
		"Ask the guest of a virtual machine to reboot: its agent, or by the power button if it has none that answers.")
}

func (a *app) reset() *cobra.Command {
	return a.tell("reset", "reset", "reseting", "Reset a virtual machine", "Reset a virtual machine at once, as its button does. What the guest has not written is lost.")
}

// tell returns a verb that the guest's launcher carries out.
func (a *app) tell(verb, subresource, doing, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " VMI", Short: short, Long: long, Example: a.examples(`
  virtctl ` + verb + ` web`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(instances),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if err := machine.Tell(cmd.Context(), c, args[0], subresource); err != nil {
				return fmt.Errorf("Error %s VirtualMachineInstance %s: %w", doing, args[0], err) // the text clients know
			}
			_, err = fmt.Fprintf(a.out, "VMI %s was scheduled to %s\n", args[0], verb)
			return err
		},
	}
}

func (a *app) evacuateCancel() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "evacuate-cancel (vm|vmi) NAME", Short: "Keep a virtual machine on its node that a drain wants to move",
		Long: "Take back that a virtual machine is to leave its node. A migration that has begun goes on: virtctl migrate-cancel ends it. A drain that is still\n" +
			"under way asks again, and is not followed for five minutes.",
		Example: a.examples(`
  # Keep machine web where it is
  virtctl evacuate-cancel vm web`),
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.kinds(),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name := forward.Kind(args[0]), args[1]
			if kind == "" {
				return misused(cmd, fmt.Errorf("unsupported resource type %q", args[0]))
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			word := map[string]string{"vm": "VM", "vmi": "VMI"}[kind]
			if err := machine.CancelEvacuation(cmd.Context(), c, kind, name, dryRun); err != nil {
				return fmt.Errorf("error canceling evacuation for %s %s/%s: %w", word, c.Namespace, name, err)
			}
			_, err = fmt.Fprintf(a.out, "%s %s/%s was canceled evacuation\n", word, c.Namespace, name)
			return err
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "have the request checked and change nothing")
	return cmd
}
