package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/machine"
	"github.com/berth-vm/berth/internal/virtctl/stream"
)

const interval = 500 * time.Millisecond

var errTooLong = errors.New("time limit")

// Await waits until the machine runs, and tells out what it waits for.
func Await(ctx context.Context, c *kube.Client, name string, limit time.Duration, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	said := ""
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		instance, err := kube.Instances.Get(ctx, c, name)
		if err != nil {
			return false, err
		}
		if instance != nil && instance.Status.Phase == kubevirt.PhaseRunning {
			return true, nil
		}
		why, err := reason(ctx, c, name, instance)
		if err == nil && why != said {
			said = why
			_, _ = fmt.Fprintf(out, "Waiting for %s to run: %s\n", name, why)
		}
		return false, err
	})
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		return fmt.Errorf("%s does not run after %s: %s", name, limit, said)
	}
	return err
}

// reason returns what the machine says about not running. A machine that is not there, or is not meant to run, is an error.
func reason(ctx context.Context, c *kube.Client, name string, instance *kubevirt.VirtualMachineInstance) (string, error) {
	if instance != nil {
		return machine.Said(string(instance.Status.Phase), instance.Status.Conditions), nil
	}
	vm, err := kube.Machines.Get(ctx, c, name)
	switch {
	case err != nil:
		return "", err
	case vm == nil:
		return "", fmt.Errorf("there is no VM %s/%s", c.Namespace, name)
	case vm.Status.PrintableStatus == kubevirt.StatusStopped:
		return "", fmt.Errorf("VM %s/%s is stopped; start it with: virtctl start %s", c.Namespace, name, name)
	}
	return machine.Said(string(vm.Status.PrintableStatus), vm.Status.Conditions), nil
}

// Open opens the console of a machine that runs.
func Open(ctx context.Context, c *kube.Client, name string) (*websocket.Conn, error) {
	return dial(ctx, c.Config, machine.Path(c, "virtualmachineinstances", name, "console"))
}

func dial(ctx context.Context, config *rest.Config, path string) (*websocket.Conn, error) {
	conn, err := stream.Dial(ctx, config, path)
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	return conn, nil
}
