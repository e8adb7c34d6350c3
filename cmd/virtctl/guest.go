package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/machine"
)

func (a *app) guestOSInfo() *cobra.Command {
	return a.guest("guestosinfo", "guestosinfo", "getting guestosinfo", "Show what the guest agent says about the operating system")
}

func (a *app) fsList() *cobra.Command {
	return a.guest("fslist", "filesystemlist", "listing filesystems", "Show the filesystems that are mounted in the guest, and how full they are")
}

func (a *app) userList() *cobra.Command {
	return a.guest("userlist", "userlist", "listing users", "Show who is logged in to the guest")
}

// guest returns a verb that asks the guest's agent.
func (a *app) guest(verb, subresource, doing, short string) *cobra.Command {
	output := format("json")
	cmd := &cobra.Command{
		Use: verb + " VM", Short: short, Long: short + ". The guest needs a QEMU guest agent; what is shown is its own word.",
		Example: a.examples(`
  virtctl ` + verb + ` web`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(instances),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			text, err := machine.Read(cmd.Context(), c, "virtualmachineinstances", args[0], subresource)
			if err != nil {
				return fmt.Errorf("Error %s of VirtualMachineInstance %s, %w", doing, args[0], err) // the text clients know
			}
			var document any
			if err := json.Unmarshal(text, &document); err != nil {
				return fmt.Errorf("read the cluster's answer: %w", err)
			}
			return output.write(a.out, document)
		},
	}
	output.bind(cmd)
	return cmd
}
