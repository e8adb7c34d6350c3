package main

import (
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/virtctl/status"
)

func (a *app) volumes() *cobra.Command {
	var output format
	var all bool
	cmd := &cobra.Command{
		Use: "volumes", Short: "Show every disk: where it is, how full, and what it waits for",
		Long: "Show every disk of a namespace: DataVolumes, and claims that machines have or that are being filled. How full one is, is known\n" +
			"while a machine has it, and to those who may ask nodes (nodes/proxy); where a local one is, to those who may read\n" +
			"PersistentVolumes.",
		Example: a.examples(`
  # Which disks wait, and why?
  virtctl volumes

  # The same for a script, of all namespaces
  virtctl volumes -A -o json`),
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if all {
				c = c.In(metav1.NamespaceAll)
			}
			found, err := status.Volumes(cmd.Context(), c)
			if err != nil {
				return err
			}
			if output != "" {
				return output.write(a.out, map[string][]status.Volume{"items": found})
			}
			return status.WriteVolumes(a.out, found, all, time.Now())
		},
	}
	output.bind(cmd)
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "show those of all namespaces")
	return cmd
}
