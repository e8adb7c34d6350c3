package main

import (
	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/machine"
)

func (a *app) restart() *cobra.Command {
	return a.change(change{
		verb: "restart", short: "Stop a virtual machine and start it again", force: true, do: machine.Restart, example: `
  # Shut the guest of machine web down and start it again
  virtctl restart web

  # Switch it off and on
  virtctl restart web --force --grace-period=0`,
	})
}
