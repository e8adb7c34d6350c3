package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// refusals are upstream's verbs that are out of scope, and what to do instead.
var refusals = map[string]string{ //nolint:gosec // the verb is called credentials, and none are here
	"guestfs":           "virtctl guestfs is not supported: to look into a disk, run a pod of yours on its claim, or add the claim to a machine with virtctl addvolume",
	"usbredir":          "virtctl usbredir is not supported: devices of your computer are not passed to guests",
	"memory-dump":       "virtctl memory-dump is not supported: Berth moves and keeps disks, and writes no guest's memory to a claim",
	"permitted-devices": "virtctl permitted-devices is not supported: devices of nodes are not passed to guests",
	"credentials":       "virtctl credentials is not supported: change the Secrets that the machine's accessCredentials or cloud-init name",
	"adm":               "virtctl adm is not supported: kubectl logs shows what the programs of Berth say",
	"template":          "virtctl template is not supported: use instance types, preferences and virtctl create vm",
}

// refused answers a verb of upstream's that is not there, so that scripts learn why. It takes whatever it is given.
func refused(verb, why string) *cobra.Command {
	return &cobra.Command{
		Use: verb, Hidden: true, Short: why, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return errors.New(why) },
	}
}
