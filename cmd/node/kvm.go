package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// resource is the extended resource that machines request; guests is how many may have it at once: the device has no limit of its
// own, and a node runs no more pods than this.
const (
	resource = "devices.kubevirt.io/kvm"
	guests   = 250
	socket   = "berth-kvm.sock"
)

// offerKVM advertises KVM to the kubelet, as often as the kubelet is restarted. Devices of a KVM that does not work are unhealthy: the node has them
// in its capacity and none of them is allocatable, so that no machine is placed there for it, and tell is called with the cause. A node without the
// device has none.
func offerKVM(ctx context.Context, log *slog.Logger, tell func(cause error)) error {
	o := offer{count: guests, health: plugin.Healthy}
	_, missing := os.Stat(kvmDevice)
	switch err := works(ctx); {
	case missing != nil:
		o.count = 0
		log.Warn("this node has no KVM to offer", "error", missing.Error())
	case err != nil:
		o.health = plugin.Unhealthy
		log.Warn("the KVM of this node does not work: none of its devices is allocatable", "error", err.Error())
		tell(err)
	default:
		if err := open(kvmDevice); err != nil {
			return err
		}
		log.Info("this node has KVM")
	}
	for ctx.Err() == nil {
		if err := serve(ctx, plugin.DevicePluginPath, o); err != nil {
			log.Warn("the kubelet was not told of KVM", "error", err.Error())
		}
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// works runs a guest in a process that can be ended.
func works(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/proc/self/exe", "try").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// open lets machines use the device, which run as an ordinary user; most distributions do so themselves.
func open(device string) error {
	info, err := os.Stat(device)
	if err != nil {
		return err
	}
	const everybody = 0o666
	if info.Mode().Perm() == everybody {
		return nil
	}
	return os.Chmod(device, everybody)
}

// serve registers with the kubelet and answers it until it forgets us, which it does by removing our socket.
func serve(ctx context.Context, dir string, o offer) error {
	path := filepath.Join(dir, socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen to the kubelet: %w", err)
	}
	stopped := make(chan struct{})
	o.stopped = stopped
	s := grpc.NewServer()
	plugin.RegisterDevicePluginServer(s, &o)
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	defer close(stopped)
	if err := register(ctx, filepath.Join(dir, "kubelet.sock")); err != nil && ctx.Err() == nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, err := os.Stat(path); err != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func register(ctx context.Context, kubelet string) error {
	c, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("reach the kubelet: %w", err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = plugin.NewRegistrationClient(c).Register(ctx, &plugin.RegisterRequest{
		Version: plugin.Version, Endpoint: socket, ResourceName: resource})
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	return nil
}

// offer answers the kubelet.
type offer struct {
	plugin.UnimplementedDevicePluginServer
	count   int
	health  string
	stopped <-chan struct{}
}

// GetDevicePluginOptions returns the defaults.
func (*offer) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

// ListAndWatch returns what there is, once: whether KVM works does not change while the agent runs.
func (o *offer) ListAndWatch(_ *plugin.Empty, stream plugin.DevicePlugin_ListAndWatchServer) error {
	var all []*plugin.Device
	for i := range o.count {
		all = append(all, &plugin.Device{ID: fmt.Sprintf("kvm%d", i), Health: o.health})
	}
	if err := stream.Send(&plugin.ListAndWatchResponse{Devices: all}); err != nil {
		return err
	}
	select {
	case <-o.stopped:
	case <-stream.Context().Done():
	}
	return nil
}

// Allocate gives a container the one device there is.
func (*offer) Allocate(_ context.Context, r *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	answer := &plugin.AllocateResponse{}
	for range r.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &plugin.ContainerAllocateResponse{
			Devices: []*plugin.DeviceSpec{{HostPath: kvmDevice, ContainerPath: kvmDevice, Permissions: "rw"}}})
	}
	return answer, nil
}
