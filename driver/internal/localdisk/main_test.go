package localdisk

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// roles are the programs that the test binary can run as when a test starts it again.
var roles = map[string]func() int{"driver": driverRole}

const (
	envRole    = "LOCALDISK_TEST_ROLE"
	envPool    = "LOCALDISK_TEST_POOL"
	envSocket  = "LOCALDISK_TEST_SOCKET"
	envCrashAt = "LOCALDISK_TEST_CRASH_AT"
	envFSType  = "LOCALDISK_TEST_FSTYPE"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		os.Exit(roles[role]())
	}
	os.Exit(m.Run())
}

// testSettings are generous: most tests are not about room.
func testSettings(dir string) Settings {
	fsType := os.Getenv(envFSType)
	if fsType == "" {
		fsType = "ext4"
	}
	mark(dir)
	return Settings{Dir: dir, Node: "node1", Overcommit: 100, FSType: fsType, Capacity: 1 << 50} // all of whatever it is on
}

// mark does what an administrator does to make a directory a pool; one that has been used stays as it is.
func mark(dir string) {
	_, err := os.Stat(filepath.Join(dir, fileNode))
	if err == nil {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, fileMarker), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		panic(err)
	}
	_ = f.Close()
}

// driverRole serves a pool until it is ended, or ends itself as kill -9 would at the step it was told.
func driverRole() int {
	d, err := Open(testSettings(os.Getenv(envPool)), "test", slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if at, err := strconv.Atoi(os.Getenv(envCrashAt)); err == nil && at > 0 {
		steps := make(chan int, 1)
		steps <- 0
		d.pool.reached = func(step string) {
			n := <-steps + 1
			if n == at {
				fmt.Fprintf(os.Stderr, "dies at step %d: %s\n", n, step)
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // until the signal arrives
			}
			steps <- n
		}
	}
	listener, err := net.Listen("unix", os.Getenv(envSocket))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stdout, "ready")
	if err := d.Server().Serve(listener); err != nil {
		return 1
	}
	return 0
}

// client calls a driver.
type client struct {
	csi.ControllerClient
	csi.NodeClient
	csi.IdentityClient
	csi.SnapshotMetadataClient
}

func dial(t *testing.T, path string) client {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{csi.NewControllerClient(conn), csi.NewNodeClient(conn), csi.NewIdentityClient(conn), csi.NewSnapshotMetadataClient(conn)}
}

// open opens a pool in this process and serves it.
func open(t *testing.T, s Settings) (*Driver, client) {
	t.Helper()
	d, err := Open(s, "test", quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	socket := t.TempDir() + "/csi.sock"
	listener, err := new(net.ListenConfig).Listen(context.Background(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := d.Server()
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, dial(t, socket)
}

func block() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func mounted(fsType string) *csi.VolumeCapability {
	c := block()
	c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}}
	return c
}

func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id},
	}}
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id},
	}}
}

// asking returns a request for a Block volume of some MiB.
func asking(name string, mib int64) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{block()}, CapacityRange: &csi.CapacityRange{RequiredBytes: mib << 20},
	}
}

func (c client) mustCreate(t *testing.T, r *csi.CreateVolumeRequest) *csi.Volume {
	t.Helper()
	response, err := c.CreateVolume(t.Context(), r)
	if err != nil {
		t.Fatalf("create %s: %v", r.GetName(), err)
	}
	return response.GetVolume()
}

func quiet(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
