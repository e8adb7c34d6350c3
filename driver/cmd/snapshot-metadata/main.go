// Command snapshot-metadata serves, beside the CSI driver of a node, the Kubernetes service that tells which blocks of VolumeSnapshots
// have data or changed. What it does is the package internal/metadata.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-vm/berth/driver/internal/metadata"
	"github.com/berth-vm/berth/internal/version"
)

// The service is announced again at intervals, in case the object was deleted, and soon if that failed.
const (
	announceAgain = 5 * time.Minute
	announceSoon  = 10 * time.Second
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
		fmt.Fprintln(os.Stderr, "snapshot-metadata:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	csi, address, service, namespace, node, labels string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("snapshot-metadata", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.csi, "csi-address", "/csi/csi.sock", "`path` of the driver's socket")
	flags.StringVar(&o.address, "address", ":50051", "`address` to serve on, with TLS")
	flags.StringVar(&o.service, "service", "localdisk-snapshot-metadata", "`name` of the Service in front of all nodes, and of the Secret with its authority")
	flags.StringVar(&o.labels, "pods", "app.kubernetes.io/name=localdisk-snapshot-metadata", "`labels` of the pods that serve this on other nodes")
	flags.StringVar(&o.namespace, "namespace", os.Getenv("NAMESPACE"), "`namespace` of this pod")
	flags.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "`name` of this node")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.namespace == "" || o.node == "":
		return o, errors.New("--namespace (or NAMESPACE) and --node (or NODE_NAME) are needed")
	}
	return o, nil
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	_, port, err := net.SplitHostPort(o.address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100 // a call takes four questions; strangers' tokens take one
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	driver, err := grpc.NewClient("unix:"+o.csi, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer driver.Close()
	info, err := csi.NewIdentityClient(driver).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("ask the driver at %s for its name: %w", o.csi, err)
	}
	audience := "snapshot-metadata." + info.GetName()
	keys := &metadata.Keys{
		Kube: kube, Objects: objects, Namespace: o.namespace, Service: o.service, Port: port, Driver: info.GetName(), Audience: audience,
	}
	if err := keys.Load(ctx, time.Now()); err != nil {
		return err
	}
	server := (&metadata.Server{
		Kube: kube, Objects: objects, CSI: csi.NewSnapshotMetadataClient(driver), Driver: info.GetName(), Audience: audience, Node: o.node,
		Peer: keys.Peer(o.labels), Log: log,
	}).GRPC(grpc.Creds(keys.Server()))
	return serve(ctx, o.address, server, func() time.Duration {
		if err := keys.Announce(ctx); err != nil {
			log.Error("clients do not find the service", "error", err.Error())
			return announceSoon
		}
		return announceAgain
	})
}

// serve serves until the context ends, and announces the service from time to time.
func serve(ctx context.Context, address string, server *grpc.Server, announce func() time.Duration) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer server.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		case <-time.After(announce()):
		}
	}
}
