package main

import (
	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/machine"
)

func (a *app) stop() *cobra.Command {
	return a.change(change{
		verb: "stop", short: "Stop a virtual machine", force: true, do: machine.Stop, example: `
  # Shut the guest of machine web down and stop it
  virtctl stop web

  # Switch it off
  virtctl stop web --force --grace-period=0`,
	})
}
