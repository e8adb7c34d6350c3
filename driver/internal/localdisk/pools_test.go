package localdisk

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/berth-vm/berth/internal/usagetype"
)

// marked returns a directory that an administrator has made a pool.
func marked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileMarker), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// node serves the pools of a node on a socket, as the sidecars and the kubelet find them.
func node(t *testing.T, main string, types map[string]string) (csi.ControllerClient, csi.NodeClient, func()) {
	t.Helper()
	settings := func(dir, kind string) Settings {
		return Settings{Dir: dir, UsageType: kind, Node: "node1", Capacity: 1 << 30, Overcommit: 1, FSType: "ext4"}
	}
	var further []Settings
	for kind, dir := range types {
		further = append(further, settings(dir, kind))
	}
	p, err := OpenPools(settings(main, ""), further, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "csi.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Server()
	go func() { _ = s.Serve(l) }()
	c, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	end := func() {
		_ = c.Close()
		s.Stop()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	return csi.NewControllerClient(c), csi.NewNodeClient(c), end
}

func blockVolume(name, kind string) *csi.CreateVolumeRequest {
	r := &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20}, VolumeCapabilities: []*csi.VolumeCapability{{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}}}
	if kind != "" {
		r.Parameters = map[string]string{usagetype.Parameter: kind}
	}
	return r
}

func volumesIn(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, dirVolumes))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestPools: a node offers the types its pools have, a volume is in the pool that its class asks for, and stays to be found there
// when the driver starts again; a type that the node has not is refused, and has no room.
func TestPools(t *testing.T) {
	main, fast, slow := marked(t), marked(t), marked(t)
	types := map[string]string{"fast": fast, "slow": slow, "broken": t.TempDir()} // the last one is not marked
	control, kubelet, end := node(t, main, types)
	info, err := kubelet.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	places := info.GetAccessibleTopology().GetSegments()
	if places[TopologyKey] != "node1" || places[usagetype.Topology+"fast"] != "true" || places[usagetype.Topology+"slow"] != "true" || len(places) != 3 {
		t.Errorf("the node says %v", places)
	}
	handles := map[string]string{}
	for _, kind := range []string{"", "fast", "slow"} {
		made, err := control.CreateVolume(t.Context(), blockVolume("volume", kind)) // one name in all three
		if err != nil {
			t.Fatal(err)
		}
		handles[kind] = made.GetVolume().GetVolumeId()
	}
	if volumesIn(t, main) != 1 || volumesIn(t, fast) != 1 || volumesIn(t, slow) != 1 {
		t.Error("the volumes are not each in its pool")
	}
	for _, kind := range []string{"broken", "unheard-of"} {
		_, err := control.CreateVolume(t.Context(), blockVolume("other", kind))
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "it offers: fast, slow") {
			t.Errorf("type %s: %v", kind, err)
		}
		c, err := control.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{usagetype.Parameter: kind}})
		if err != nil || c.GetAvailableCapacity() != 0 {
			t.Errorf("type %s has room: %v, %v", kind, c, err)
		}
	}
	if c, err := control.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{usagetype.Parameter: "fast"}}); err != nil || c.GetAvailableCapacity() == 0 {
		t.Errorf("type fast has no room: %v, %v", c, err)
	}
	end()
	control, _, end = node(t, main, types)
	defer end()
	for kind, handle := range handles {
		if _, err := control.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: handle}); err != nil {
			t.Errorf("volume of type %q: %v", kind, err)
		}
		if _, err := control.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle}); err != nil {
			t.Errorf("delete a volume of type %q: %v", kind, err)
		}
	}
	if volumesIn(t, main) != 0 || volumesIn(t, fast) != 0 || volumesIn(t, slow) != 0 {
		t.Error("a volume is left")
	}
}

// TestPoolMetrics: what is promised, written and left of each pool is shown, as it is at that moment.
func TestPoolMetrics(t *testing.T) {
	settings := func(dir, kind string) Settings {
		return Settings{Dir: dir, UsageType: kind, Node: "node1", Capacity: 1 << 30, Overcommit: 2, FSType: "ext4"}
	}
	pools, err := OpenPools(settings(marked(t), ""), []Settings{settings(marked(t), "fast")}, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer pools.Close()
	made, err := pools.types["fast"].CreateVolume(t.Context(), blockVolume("volume", "fast"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := parseID(kindVolume, made.GetVolume().GetVolumeId())
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.OpenFile(pools.types["fast"].pool.image(id), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := image.Write(make([]byte, 64<<10)); err != nil || image.Sync() != nil || image.Close() != nil {
		t.Fatal(err)
	}
	want := `
# HELP localdisk_pool_capacity_bytes What a pool has
# TYPE localdisk_pool_capacity_bytes gauge
localdisk_pool_capacity_bytes{node="node1",usage_type=""} 1.073741824e+09
localdisk_pool_capacity_bytes{node="node1",usage_type="fast"} 1.073741824e+09
# HELP localdisk_pool_limit_bytes What a pool may promise: its capacity times the overcommit ratio
# TYPE localdisk_pool_limit_bytes gauge
localdisk_pool_limit_bytes{node="node1",usage_type=""} 2.147483648e+09
localdisk_pool_limit_bytes{node="node1",usage_type="fast"} 2.147483648e+09
# HELP localdisk_pool_promised_bytes What a pool has promised to volumes, and keeps for snapshots
# TYPE localdisk_pool_promised_bytes gauge
localdisk_pool_promised_bytes{node="node1",usage_type=""} 0
localdisk_pool_promised_bytes{node="node1",usage_type="fast"} 1.048576e+06
# HELP localdisk_pool_used_bytes What volumes and snapshots of a pool have written
# TYPE localdisk_pool_used_bytes gauge
localdisk_pool_used_bytes{node="node1",usage_type=""} 0
localdisk_pool_used_bytes{node="node1",usage_type="fast"} 65536
# HELP localdisk_pool_volumes Volumes in a pool
# TYPE localdisk_pool_volumes gauge
localdisk_pool_volumes{node="node1",usage_type=""} 0
localdisk_pool_volumes{node="node1",usage_type="fast"} 1
`
	err = testutil.CollectAndCompare(Metrics{Pools: pools}, strings.NewReader(want), "localdisk_pool_capacity_bytes", "localdisk_pool_limit_bytes",
		"localdisk_pool_promised_bytes", "localdisk_pool_used_bytes", "localdisk_pool_volumes")
	if err != nil {
		t.Error(err)
	}
}

// TestUsageTypesOfAPod reads annotations as the kubelet writes them, the proposal's own among them.
func TestUsageTypesOfAPod(t *testing.T) {
	file := filepath.Join(t.TempDir(), "annotations")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := UsageTypes(file); err != nil || len(got) != 0 {
		t.Errorf("no file: %v, %v", got, err)
	}
	write("kubernetes.io/config.seen=\"2026-11-15T12:00:00Z\"\nkubevirt.io/storage.usage-type.fast=\"/storage/ssd\"\nkubevirt.io/storage.usage-type.slow=\"/storage/rust\"\nother=\"a\\nb=c\"\n")
	if got, err := UsageTypes(file); err != nil || len(got) != 2 || got["fast"] != "/storage/ssd" || got["slow"] != "/storage/rust" {
		t.Errorf("read %v, %v", got, err)
	}
	for _, bad := range []string{`fast="storage"`, `fast="/a/../b"`, `Fast="/a"`, `="/a"`, `fast=/a`, `fast="/"x`} {
		write(usagetype.Annotation + bad + "\n")
		if got, err := UsageTypes(file); err == nil {
			t.Errorf("%s is read as %v", bad, got)
		}
	}
}
