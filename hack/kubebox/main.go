// Command kubebox is a Kubernetes cluster for one machine, in one file: the components of Kubernetes and etcd, and the commands
// that run three nodes of them in namespaces. The name of the program, or its first argument, selects the component that runs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/berth-vm/berth/hack/kubebox/internal/cli"
)

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if name != "kubebox" || len(args) > 0 {
		if name == "kubebox" {
			name, args = args[0], args[1:]
		}
		if run, found := applets[name]; found {
			os.Args = append([]string{name}, args...)
			os.Exit(run(args))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := cli.New(os.Stdout).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubebox:", err)
		os.Exit(1)
	}
}
