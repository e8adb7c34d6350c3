package main

import (
	"fmt"

	"github.com/spf13/cobra"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/machine"
)

func (a *app) removeVolume() *cobra.Command {
	var f volumeFlags
	cmd := &cobra.Command{
		Use: "removevolume VM --volume-name NAME", Short: "Remove a volume from a running virtual machine",
		Example: a.examples(`
  # Remove the volume data from machine web, permanently
  virtctl removevolume web --volume-name=data --persist`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(machines),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := kubevirt.RemoveVolumeOptions{Name: f.volume}
			if f.dryRun {
				o.DryRun = []string{"All"}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if err := machine.RemoveVolume(cmd.Context(), c, args[0], o, f.persist); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "Successfully submitted remove volume request to VM %s for volume %s\n", args[0], f.volume)
			return err
		},
	}
	s := cmd.Flags()
	s.StringVar(&f.volume, "volume-name", "", "name of the volume in the machine")
	s.BoolVar(&f.persist, "persist", false, "remove it from the machine itself, not only from its present run")
	s.BoolVar(&f.dryRun, "dry-run", false, "have the request checked and change nothing")
	_ = cmd.MarkFlagRequired("volume-name") // the flag exists
	return cmd
}
