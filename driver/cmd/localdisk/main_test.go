package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/berth-vm/berth/driver/internal/localdisk"
)

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestKubeletIsTold: the kubelet finds the driver through its registry, also after one that was killed, and may refuse it.
func TestKubeletIsTold(t *testing.T) {
	dir := t.TempDir()
	socket, registry := filepath.Join(dir, "csi.sock"), filepath.Join(dir, "registry")
	for _, path := range []string{socket, filepath.Join(dir, "pool.json")} { // left by one that was killed, and by an administrator
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- run(t.Context(), []string{
			"--pool", dir, "--node", "node1", "--endpoint", socket, "--registry", registry, "--reported-endpoint", "/seen/csi.sock", "--capacity", "1Gi",
		}, io.Discard)
	}()
	conn := dial(t, filepath.Join(registry, localdisk.Name+"-reg.sock"))
	kubelet := registerapi.NewRegistrationClient(conn)
	info, err := kubelet.GetInfo(t.Context(), &registerapi.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.GetName() != localdisk.Name || info.GetEndpoint() != "/seen/csi.sock" || info.GetType() != registerapi.CSIPlugin {
		t.Fatalf("info: %v, %v", info, err)
	}
	node, err := csi.NewNodeClient(dial(t, socket)).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	if err != nil || node.GetAccessibleTopology().GetSegments()[localdisk.TopologyKey] != "node1" {
		t.Errorf("node: %v, %v", node, err)
	}
	if _, err := kubelet.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Error(err)
	}
	// whether the answer arrives before the driver ends is up to the scheduler
	_, _ = kubelet.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "no room"})
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "refuses the driver: no room") {
		t.Errorf("refused, the driver ends with %v", err)
	}
}

// TestEnds without an error when it is asked to.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pool.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(ctx, []string{"--pool", dir, "--node", "n", "--endpoint", dir + "/s", "--capacity", "1Gi"}, io.Discard); err != nil {
		t.Error(err)
	}
}

// TestBadFlags: each is refused with what is wrong.
func TestBadFlags(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for says, args := range map[string][]string{
		"--pool is needed":        nil,
		"--node (or NODE_NAME)":   {"--pool", "/x"},
		"is not a size":           {"--pool", "/x", "--node", "n", "--capacity", "much"},
		"unexpected argument":     {"--pool", "/x", "--node", "n", "more"},
		"no such file":            {"--pool", "/nonexistent/x", "--node", "n"},
		"is not a pool":           {"--pool", t.TempDir(), "--node", "n"},
		"not above 0":             {"--pool", "/x", "--node", "n", "--overcommit", "0"},
		`"btrfs" is not ext4`:     {"--pool", "/x", "--node", "n", "--fstype", "btrfs"},
		"cannot be a topology":    {"--pool", "/x", "--node", "A_B"},
		"flag provided but not d": {"--colour"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", args, err, says)
		}
	}
}
