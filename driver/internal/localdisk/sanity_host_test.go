//go:build host

package localdisk

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

const envAccess = "LOCALDISK_TEST_ACCESS"

func init() { roles["sanity"] = sanityRole }

// TestSanity runs the suite that every CSI driver is held to. It allows one run in a process, hence the role.
func TestSanity(t *testing.T) {
	for _, poolFS := range []string{"xfs", "ext4"} {
		for _, row := range []struct{ access, fsType string }{{"block", "ext4"}, {"mount", "ext4"}, {"mount", "xfs"}} {
			t.Run(poolFS+"/"+row.access+"/"+row.fsType, func(t *testing.T) {
				dir := t.TempDir()
				suite := exec.CommandContext(t.Context(), os.Args[0])
				suite.Env = append(os.Environ(), envRole+"=sanity", envPool+"="+poolOn(t, poolFS, 4), envSocket+"="+filepath.Join(dir, "csi.sock"),
					envAccess+"="+row.access, envFSType+"="+row.fsType)
				suite.Dir = dir
				out, err := suite.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				t.Logf("%s", out[max(0, len(out)-400):])
			})
		}
	}
}

// outcome records whether a test of the suite failed.
type outcome struct{ failed bool }

func (o *outcome) Fail() { o.failed = true }

// unhurried makes a connection take a moment: the suite waits for its state to change, a minute and in vain if it is ready
// before the suite looks.
type unhurried struct {
	credentials.TransportCredentials
}

func (u unhurried) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return u.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

func (u unhurried) Clone() credentials.TransportCredentials { return u }

func sanityRole() int {
	d, err := Open(testSettings(os.Getenv(envPool)), "test", slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	listener, err := net.Listen("unix", os.Getenv(envSocket))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { _ = d.Server().Serve(listener) }()
	config := sanity.NewTestConfig()
	dir := filepath.Dir(os.Getenv(envSocket))
	config.Address = "unix:" + os.Getenv(envSocket)
	config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	config.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(unhurried{insecure.NewCredentials()}), grpc.WithAuthority("localhost")}
	config.ControllerDialOptions = config.DialOptions
	config.TestVolumeAccessType = os.Getenv(envAccess)
	config.TestVolumeSize, config.TestVolumeExpandSize = 1<<30, 2<<30
	if can, err := capable(unix.CAP_SYS_RESOURCE); err != nil || !can && config.TestVolumeAccessType == "mount" && d.pool.FSType == "ext4" {
		// the kernel refuses to grow a mounted ext4 then; TestUse holds the driver to what it answers instead
		if err := errors.Join(err, flag.Set("ginkgo.skip", "node-expand is called after node-publish")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	var o outcome
	sanity.Test(&o, config)
	if o.failed {
		return 1
	}
	return 0
}
