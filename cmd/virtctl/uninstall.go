package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/uninstall"
)

// keepData is the one thing that --with-data can be told.
const keepData = "keep"

func (a *app) uninstall() *cobra.Command {
	var o uninstall.Options
	var data string
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Take Berth off the cluster",
		Long: "Take Berth off the cluster: the programs, their rights, and the definitions of their kinds. Refused while there are machines,\n" +
			"volumes or anything else of these kinds, because they would be deleted, and claims with them.\n\n" +
			"With --with-data=keep the definitions stay and so does all that was made with them: objects, claims, running guests. Guests run on,\n" +
			"but nothing restarts or moves them. Berth's finalizers are taken away, so that everything can still be deleted. Berth that is\n" +
			"installed again goes on where it was.\n\n" +
			"A storage driver is left alone, also ours: claims are of no use without.",
		Example: a.examples(`
  # What would be removed?
  virtctl uninstall --dry-run

  # Take Berth off a cluster that has no machines or volumes any more
  virtctl uninstall

  # ... off one that has, and keep them
  virtctl uninstall --with-data=keep`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if data != "" && data != keepData {
				return misused(cmd, fmt.Errorf("--with-data=%s: it can be %s", data, keepData))
			}
			o.KeepData = data == keepData
			c, err := a.client()
			if err != nil {
				return err
			}
			return uninstall.Run(cmd.Context(), c, o, a.out)
		},
	}
	s := cmd.Flags()
	s.StringVar(&data, "with-data", "", `"keep" leaves machines, volumes, claims and the definitions of their kinds as they are`)
	s.BoolVar(&o.DryRun, "dry-run", false, "say what would be removed and change nothing")
	s.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "give up waiting after this time; run again to go on")
	return cmd
}
