package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/vnc"
)

func (a *app) screenshot() *cobra.Command {
	var file string
	var move bool
	cmd := &cobra.Command{
		Use: "screenshot VM", Short: "Take a picture of the screen of a virtual machine",
		Long: "Write a picture of the screen of a running virtual machine to a file, as PNG. Viewers of the screen are not disturbed.",
		Example: a.examples(`
  # Take a picture of the screen of machine web
  virtctl vnc screenshot web -f web.png

  # ... and show it right away
  virtctl vnc screenshot web -f - | display`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(instances),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			picture, err := vnc.Screenshot(cmd.Context(), c, args[0], move)
			if err != nil {
				return err
			}
			if file == "-" {
				_, err = a.out.Write(picture)
				return err
			}
			if err := os.WriteFile(file, picture, 0o644); err != nil { // a picture that the user asked for, with the modes of any file they make
				return fmt.Errorf("write the picture: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file for the picture; - for standard output")
	cmd.Flags().BoolVarP(&move, "move-cursor", "m", false, "move the pointer first, which wakes a screen that sleeps")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

func (a *app) vnc() *cobra.Command {
	o := vnc.Options{Address: "127.0.0.1"}
	cmd := &cobra.Command{
		Use: "vnc VM", Short: "Open the screen of a virtual machine",
		Long: "Open the screen of a running virtual machine, in remote-viewer or vncviewer, whichever is installed. With --proxy-only it prints\n" +
			"the local port at which any VNC viewer finds the screen, and nothing is started.",
		Example: a.examples(`
  # Look at machine web
  virtctl vnc web

  # ... with another viewer
  virtctl vnc web --proxy-only --port 5900`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(instances),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return vnc.Run(cmd.Context(), c, args[0], o, a.out)
		},
	}
	s := cmd.Flags()
	cmd.AddCommand(a.screenshot())
	s.BoolVar(&o.ProxyOnly, "proxy-only", false, "start no viewer, and print the port")
	s.IntVar(&o.Port, "port", 0, "local port at which the screen is; one is chosen if it is 0")
	s.StringVar(&o.Address, "address", o.Address, "local address at which the screen is; who reaches it sees the screen and types")
	return cmd
}
