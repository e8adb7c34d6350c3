package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/berth-vm/berth/hack/kubebox/internal/image"
	"github.com/berth-vm/berth/hack/kubebox/internal/machine"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
	"github.com/berth-vm/berth/hack/kubebox/internal/storage"
)

// applets are the programs this binary holds besides its own commands. Each gets its arguments, also as os.Args, and returns an exit code.
var applets = map[string]func(args []string) int{
	"etcd":                    func([]string) int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func([]string) int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func([]string) int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func([]string) int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func([]string) int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
	"kube-proxy":              func([]string) int { return cli.Run(proxy.NewProxyCommand()) },
	"kubectl":                 func([]string) int { return runKubectl() },
	machine.Applet:            func(args []string) int { return exitCode(machine.Init(args)) },
	"registry":                func(args []string) int { return exitCode(runRegistry(args)) },
	"provisioner":             func(args []string) int { return exitCode(runProvisioner(args)) },
	"disks":                   func(args []string) int { return exitCode(runDisks(args)) },
}

func exitCode(err error) int {
	if err == nil || errors.Is(err, context.Canceled) {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func runKubectl() int {
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		return exitCode(err)
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // ends the process with kubectl's exit code for that error
	}
	return 0
}

// runRegistry serves the cluster's images to its nodes.
func runRegistry(args []string) error {
	flags := flag.NewFlagSet("registry", flag.ContinueOnError)
	listen := flags.String("listen", "", "address to listen on")
	images := flags.String("images", "", "directory of the image store")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store, err := image.Open(*images)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: *listen, Handler: store, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

func runProvisioner(args []string) error {
	flags := flag.NewFlagSet("provisioner", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	dir := flags.String("state", "", "state directory of the cluster")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client, err := connect(*kubeconfig)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return storage.Provision(ctx, client, plan.Layout{Dir: *dir})
}

func runDisks(args []string) error {
	flags := flag.NewFlagSet("disks", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	node := flags.String("node", "", "name of this node")
	spec := flags.String("spec", "", "specification of this machine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	data, err := os.ReadFile(*spec)
	if err != nil {
		return fmt.Errorf("read specification: %w", err)
	}
	var m plan.Machine
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("parse specification: %w", err)
	}
	client, err := connect(*kubeconfig)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return storage.KeepDisks(ctx, client, *node, m.Disks)
}

func connect(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return kubernetes.NewForConfig(config)
}
