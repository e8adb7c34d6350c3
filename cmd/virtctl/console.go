package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/console"
)

func (a *app) console() *cobra.Command {
	var minutes uint
	cmd := &cobra.Command{
		Use: "console VM", Short: "Connect to the serial console of a running virtual machine",
		Long: "Connect to the serial console of a virtual machine. Ctrl-] leaves it; the guest goes on.",
		Example: a.examples(`
  # Connect to the console of machine web, when it runs
  virtctl console web`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(machines),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if err := console.Await(ctx, c, args[0], time.Duration(minutes)*time.Minute, a.err); err != nil {
				return err
			}
			conn, err := console.Open(ctx, c, args[0])
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(a.err, "Successfully connected to %s console. The escape sequence is ^]\n", args[0])
			restore, err := console.Raw(a.in)
			if err != nil {
				return err
			}
			defer restore()
			return console.Join(ctx, conn, a.in, a.out)
		},
	}
	cmd.Flags().UintVar(&minutes, "timeout", 5, "how many minutes to wait for the machine to run")
	return cmd
}
