package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/tools/record"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet is the side of the kubelet that plugins register with.
type kubelet struct {
	plugin.UnimplementedRegistrationServer
	asked chan *plugin.RegisterRequest
}

func (k *kubelet) Register(_ context.Context, r *plugin.RegisterRequest) (*plugin.Empty, error) {
	k.asked <- r
	return &plugin.Empty{}, nil
}

// TestOfferKVM: the kubelet is told how many guests can have KVM, that these devices are unhealthy where it does not work, and gives a container the
// device.
func TestOfferKVM(t *testing.T) {
	for _, o := range []offer{{count: guests, health: plugin.Healthy}, {count: guests, health: plugin.Unhealthy}, {}} {
		dir := t.TempDir()
		k := &kubelet{asked: make(chan *plugin.RegisterRequest, 1)}
		l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		plugin.RegisterRegistrationServer(s, k)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, dir, o) }()
		r := <-k.asked
		if r.ResourceName != "devices.kubevirt.io/kvm" || r.Version != plugin.Version {
			t.Errorf("registered as %+v", r)
		}
		c, err := grpc.NewClient("unix://"+filepath.Join(dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		client := plugin.NewDevicePluginClient(c)
		list, err := client.ListAndWatch(ctx, &plugin.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		all, err := list.Recv()
		if err != nil || len(all.Devices) != o.count {
			t.Errorf("it offers %v, %v, not %d", all, err, o.count)
		}
		for _, d := range all.GetDevices() {
			if d.Health != o.health {
				t.Errorf("device %s is %s, not %s", d.ID, d.Health, o.health)
			}
		}
		given, err := client.Allocate(ctx, &plugin.AllocateRequest{ContainerRequests: []*plugin.ContainerAllocateRequest{{}}})
		if err != nil || len(given.ContainerResponses) != 1 || given.ContainerResponses[0].Devices[0].HostPath != "/dev/kvm" {
			t.Errorf("a container gets %v, %v", given, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
}

// TestKVMThatIsNone: a device that is missing or no KVM, and a guest that is emulated, are found out.
func TestKVMThatIsNone(t *testing.T) {
	if err := tryKVM(filepath.Join(t.TempDir(), "kvm")); err == nil {
		t.Error("a device that is not there works")
	}
	if err := tryKVM("/dev/null"); err == nil || !strings.Contains(err.Error(), "say its version") {
		t.Errorf("/dev/null: %v", err)
	}
	if err := fast(2 * time.Second); err == nil || !strings.Contains(err.Error(), "2s of processor time") {
		t.Errorf("a slow guest: %v", err)
	}
	if err := fast(time.Millisecond); err != nil {
		t.Error(err)
	}
}

// TestNoKVMToOffer: an agent on a node whose KVM does not work, or that has none, continues and says why; the node is told of a
// device that runs no guest, and not of one that is missing. Here "try" is this test's own program, which knows no such verb.
func TestNoKVMToOffer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log strings.Builder
	told := 0
	err := offerKVM(ctx, slog.New(slog.NewTextHandler(&log, nil)), func(error) { told++ })
	words, tells := "no KVM to offer", 0
	if _, err := os.Stat(kvmDevice); err == nil {
		words, tells = "does not work", 1
	}
	if err != nil || !strings.Contains(log.String(), words) || told != tells {
		t.Errorf("%v, told %d times: %s", err, told, log.String())
	}
}

// TestTellNode: the event is the node's, and has the cause.
func TestTellNode(t *testing.T) {
	r := record.NewFakeRecorder(1)
	r.IncludeObject = true
	tellNode(r, "node1", errors.New("it took 480ms"))
	got := <-r.Events
	for _, want := range []string{"Warning KVMDoesNotWork /dev/kvm is there, but runs no guest: it took 480ms. None of devices.kubevirt.io/kvm", "kind=Node"} {
		if !strings.Contains(got, want) {
			t.Errorf("the event lacks %q: %s", want, got)
		}
	}
}
