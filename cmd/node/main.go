// Command node is Berth's agent on every node. Its verbs run in containers of their own, because they need different rights: `node
// kvm` offers the node's KVM to machines if it works, which needs the device, and has an event say so if it does not; `node disks`
// introduces the pod of an added disk to the machine that is to have it, which needs the kubelet's directory of pods and no
// privilege at all; `node layers` keeps the layers of container images that machines run, which needs nothing but its directory.
// `node try` runs one guest of a few instructions, because the existence of the device does not prove that KVM works.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/berth-vm/berth/internal/version"
)

func main() {
	version.Answer()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		stop()
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	switch {
	case len(args) == 1 && args[0] == "kvm":
		tell, err := nodeTeller(ctx, log, os.Getenv("NODE_NAME"))
		if err != nil {
			return err
		}
		return offerKVM(ctx, log, tell)
	case len(args) == 1 && args[0] == "try":
		return tryKVM(kvmDevice)
	case len(args) == 1 && args[0] == "disks":
		return introduceDisks(ctx, log, os.Getenv("NODE_NAME"))
	case len(args) > 0 && args[0] == "layers":
		return keepLayers(ctx, log, args[1:])
	}
	return errors.New("usage: node kvm | disks | layers [--bytes SIZE] | try")
}
