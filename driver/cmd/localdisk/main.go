// Command localdisk is the CSI driver of one node: it serves the volumes of a pool on a socket, and tells the kubelet of
// it. What it does with them is the package internal/localdisk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-vm/berth/driver/internal/localdisk"
	"github.com/berth-vm/berth/internal/metricsserver"
	"github.com/berth-vm/berth/internal/version"
)

func main() {
	version.Answer()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "localdisk:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	pool     localdisk.Settings
	endpoint string // the driver's socket
	registry string // the kubelet's directory for plugins; empty: it is not told
	reported string // the socket's path as the kubelet sees it
	types    []localdisk.Settings
	metrics  string // where Prometheus asks; empty: nowhere
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var capacity string
	flags := flag.NewFlagSet("localdisk", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.pool.Dir, "pool", "", "`directory` of the pool, best a mounted XFS with reflink; an administrator marked it with a file pool.json")
	flags.StringVar(&o.pool.Node, "node", os.Getenv("NODE_NAME"), "`name` of this node")
	flags.StringVar(&capacity, "capacity", "", "how much of its filesystem the pool may fill, for example 100Gi; all of it if empty, which then must be the pool's alone")
	flags.Float64Var(&o.pool.Overcommit, "overcommit", 1, "`ratio` of what may be promised to what there is; 1 promises nothing twice")
	flags.StringVar(&o.pool.FSType, "fstype", "ext4", "`filesystem` of volumes whose class names none: ext4 or xfs")
	flags.StringVar(&o.endpoint, "endpoint", "/csi/csi.sock", "`path` of the socket to serve on")
	flags.StringVar(&o.registry, "registry", "", "the kubelet's `directory` plugins_registry; empty: the kubelet is not told")
	flags.StringVar(&o.reported, "reported-endpoint", "", "`path` of the socket as the kubelet sees it; --endpoint if empty")
	flags.StringVar(&o.metrics, "metrics", "", "`address` at which Prometheus finds /metrics, as plain HTTP; nowhere if empty")
	annotations := flags.String("annotations", "", "`file` with the annotations of this pod: kubevirt.io/storage.usage-type.NAME is the directory of a pool of that usage type")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.pool.Dir == "":
		return o, errors.New("--pool is needed: the directory of the pool")
	case o.pool.Node == "":
		return o, errors.New("--node (or NODE_NAME) is needed: the name of this node")
	}
	if o.reported == "" {
		o.reported = o.endpoint
	}
	if capacity != "" {
		q, err := resource.ParseQuantity(capacity)
		if err != nil || q.Value() <= 0 {
			return o, fmt.Errorf("--capacity %q is not a size such as 100Gi", capacity)
		}
		o.pool.Capacity = q.Value()
	}
	return o, o.readTypes(*annotations)
}

// readTypes finds the pools of usage types, which are as the other is but for their directories. Each fills its filesystem, unless
// --capacity says how much of one.
func (o *options) readTypes(annotations string) error {
	if annotations == "" {
		return nil
	}
	types, err := localdisk.UsageTypes(annotations)
	if err != nil {
		return err
	}
	for _, usage := range slices.Sorted(maps.Keys(types)) {
		s := o.pool
		s.Dir, s.UsageType = types[usage], usage
		o.types = append(o.types, s)
	}
	return nil
}

// run is main without the process around it. Calls that run when it ends are finished by the next start.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	driver, err := localdisk.OpenPools(o.pool, o.types, version.Get().Version, log)
	if err != nil {
		return err
	}
	defer driver.Close()
	if o.metrics != "" {
		end, err := metricsserver.Serve(o.metrics, log, localdisk.Metrics{Pools: driver})
		if err != nil {
			return err
		}
		defer end()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	servers := []*socket{{path: o.endpoint, server: driver.Server()}}
	if o.registry != "" {
		servers = append(servers, &socket{
			path:   filepath.Join(o.registry, localdisk.Name+"-reg.sock"),
			server: registration(o.reported, log, cancel),
		})
	}
	return serve(ctx, cancel, servers)
}
