// Command controller runs Berth's reconcilers. This file is flags and wiring; what they do is in internal/controller.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	_ "time/tzdata" // the image has no time zones, and schedules name them

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/hookpath"
	"github.com/berth-vm/berth/internal/controller/installkeys"
	"github.com/berth-vm/berth/internal/metricsserver"
	"github.com/berth-vm/berth/internal/version"
)

type options struct {
	controllers  string
	image        string
	launcher     string
	emulate      bool
	networkDisks string
	hostDisks    string
	namespace    string
	gates        *string // nil: as the resource that Berth starts with has them
	health       string
	metrics      string
	metricsTLS   string
	elect        bool
	verbosity    int

	serving *installkeys.Serving // the certificate the webhooks answer with
	paths   *hookpath.Paths      // where they answer
}

func main() {
	version.Answer()
	var o options
	flag.StringVar(&o.controllers, "controllers", "all", "which side to run: data, machine or all")
	flag.StringVar(&o.image, "worker-image", os.Getenv("BERTH_IMAGE"), "image that workers run")
	flag.StringVar(&o.launcher, "launcher-image", os.Getenv("BERTH_LAUNCHER_IMAGE"), "image that machines run in")
	flag.BoolVar(&o.emulate, "allow-emulation", false, "run machines without KVM where a node has none, slowly")
	flag.StringVar(&o.networkDisks, "network-disks", os.Getenv("BERTH_NETWORK_DISKS"),
		"the servers that network disks may be at, as a JSON list of rules with protocols, hosts, ports and pools; without one, all but those refused always")
	flag.StringVar(&o.hostDisks, "host-disk-directories", "",
		"directories of the nodes, separated by commas, whose files machines of every namespace may use as hostDisk; empty: none")
	flag.Func("feature-gates", "feature gates, separated by commas, of the CDI resource that is made where a cluster has none; one that is there is never changed",
		func(s string) error { o.gates = &s; return nil })
	flag.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace that Berth is installed in")
	flag.StringVar(&o.health, "health-address", ":8081", "where /healthz and /readyz are")
	flag.StringVar(&o.metrics, "metrics-address", ":8080", "where /metrics is")
	flag.StringVar(&o.metricsTLS, "metrics-tls", os.Getenv(metricsserver.Environment),
		"`directory` with the tls.crt and tls.key that /metrics is served with, to those whose token may get it; empty: plain HTTP, for anybody")
	flag.BoolVar(&o.elect, "leader-elect", true, "let only one of several replicas act")
	flag.IntVar(&o.verbosity, "v", 0, "log verbosity; 1 logs every decision")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "controller: %v\n", err)
		os.Exit(1)
	}
}

func run(o options) error {
	// logr counts verbosity upwards where slog counts levels downwards.
	level := slog.Level(-o.verbosity)
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
	if err := o.check(); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	// The defaults are meant for a person at a terminal; a thousand volumes bound at once need more.
	config.QPS, config.Burst = 200, 400
	o.serving, o.paths = installkeys.NewServing(), hookpath.New()
	mgr, err := newManager(config, o)
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	if err := cacheindex.Register(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	writer := cluster.New(mgr.GetClient(), mgr.GetEventRecorder("berth"), clock.RealClock{})
	records := diskaccess.New(mgr.GetClient(), mgr.GetAPIReader(), writer)
	if err := records.Setup(mgr); err != nil {
		return err
	}
	if o.controllers != "machine" {
		if err := setUpData(ctx, mgr, writer, records, o); err != nil {
			return err
		}
	}
	if o.controllers != "data" {
		if err := setUpMachine(ctx, mgr, writer, records, o); err != nil {
			return err
		}
	}
	if err := mgr.Add(installkeys.NewMetrics(mgr.GetAPIReader(), writer, o.namespace, o.controllers != "data")); err != nil {
		return fmt.Errorf("add the certificates of metrics: %w", err)
	}
	if err := o.serveMetrics(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (o options) check() error {
	switch o.controllers {
	case "data", "machine", "all":
	default:
		return fmt.Errorf("--controllers is %q; it must be data, machine or all", o.controllers)
	}
	if _, err := diskstate.HostDirectories(o.hostDisks); err != nil {
		return fmt.Errorf("--host-disk-directories: %w", err)
	}
	if o.image == "" && o.controllers != "machine" {
		return fmt.Errorf("no worker image: set --worker-image or BERTH_IMAGE")
	}
	if o.launcher == "" && o.controllers != "data" {
		return fmt.Errorf("no launcher image: set --launcher-image or BERTH_LAUNCHER_IMAGE")
	}
	return nil
}
