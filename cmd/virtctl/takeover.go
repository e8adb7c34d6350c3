package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/takeover"
)

func (a *app) takeover() *cobra.Command {
	var o takeover.Options
	var file string
	var back bool
	cmd := &cobra.Command{
		Use: "takeover [-f MANIFEST]", Short: "Put Berth in the place of CDI",
		Long: "Put Berth in the place of CDI on a cluster that has it: CDI finishes what it is filling, its programs are scaled down, every volume is\n" +
			"taken as it is, what calls CDI is removed, and Berth's manifest is applied over the same kinds. What CDI has filled is not filled\n" +
			"again, and no claim is deleted. Refused, with nothing changed, while there is something that Berth could not go on with; takeover check\n" +
			"lists all of it. The command can be repeated at any point.\n\n" +
			"With --back CDI is started again, after Berth was taken off with virtctl uninstall --with-data=keep.",
		Example: a.examples(`
  # What would be taken, what has to be finished first, and what stands in the way?
  virtctl takeover check

  # Take over with the data side of a release
  virtctl takeover -f berth-data.yaml

  # The way back
  virtctl uninstall --with-data=keep
  virtctl takeover --back`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if back && file != "" {
				return misused(cmd, errors.New("--back needs no manifest"))
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if back {
				return takeover.Back(cmd.Context(), c, o, a.out)
			}
			if o.Manifest, err = manifest(file, cmd.InOrStdin()); err != nil {
				return err
			}
			return takeover.Run(cmd.Context(), c, o, a.out)
		},
	}
	s := cmd.Flags()
	s.StringVarP(&file, "filename", "f", "", "manifest of Berth, berth-data.yaml or berth.yaml of a release; - for standard input; nothing is installed if it is empty")
	s.BoolVar(&back, "back", false, "start CDI again")
	s.DurationVar(&o.Timeout, "timeout", 30*time.Minute, "give up waiting after this time, for what CDI is filling too; run again to go on")
	cmd.AddCommand(&cobra.Command{
		Use: "check", Short: "Say what a takeover would do, and change nothing",
		Long: "List CDI's programs, every volume and every claim that CDI fills, and what happens to each: taken, finished by CDI first, or refused and\n" +
			"why. Ends with an error if something is refused. Nothing is changed.",
		Example: a.examples("  # What stands in the way?\n  virtctl takeover check"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return takeover.Check(cmd.Context(), c, a.out)
		},
	})
	return cmd
}

// manifest returns the content of a file; nil if none is named.
func manifest(file string, standard io.Reader) ([]byte, error) {
	switch file {
	case "":
		return nil, nil
	case "-":
		return io.ReadAll(standard)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return text, nil
}
