// Command bench measures the disk driver beside what it is made of: a clone beside cp of the same file, and the I/O of a
// Block volume beside that of an image file on the same filesystem. It also holds the changes between two snapshots against a comparison
// of all bytes. It needs root, xfsprogs and fio, and about 12 GiB in
// TMPDIR; it writes results.md beside its source.
//
//	go -C driver run ./bench [-runtime 10s]
//
// It does not measure the cluster around the driver.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berth-vm/berth/driver/internal/localdisk"
)

const gib = 1 << 30

func main() {
	runtime := flag.Duration("runtime", 10*time.Second, "how long each I/O pattern runs")
	out := flag.String("o", "bench/results.md", "`file` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	report, err := measure(ctx, *runtime)
	stop()
	if err == nil {
		err = os.WriteFile(*out, []byte(report), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Fprint(os.Stdout, report)
}

// measure makes a pool on XFS, measures, and takes everything away again.
func measure(ctx context.Context, runtime time.Duration) (report string, err error) {
	dir, err := os.MkdirTemp("", "localdisk-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	point := filepath.Join(dir, "pool")
	image := filepath.Join(dir, "pool.img")
	if err := os.Mkdir(point, 0o700); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"truncate", "-s", "40G", image}, {"mkfs.xfs", "-q", image}, {"mount", "-o", "loop", image, point},
		{"touch", filepath.Join(point, "pool.json")},
	} {
		if err := run(ctx, args...); err != nil {
			return "", err
		}
	}
	defer func() {
		if uerr := run(context.WithoutCancel(ctx), "umount", point); err == nil {
			err = uerr
		}
	}()
	driver, err := localdisk.Open(localdisk.Settings{Dir: point, Node: "bench", Overcommit: 10, FSType: "ext4"}, "bench", slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	defer driver.Close()
	b := &bench{driver: driver, dir: dir, point: point, runtime: runtime}
	var text strings.Builder
	fmt.Fprintf(&text, "# The disk driver beside what it is made of\n\nMeasured %s; the pool is XFS on a loop device, patterns ran %s each. `make bench-localdisk`\n",
		time.Now().UTC().Format(time.DateOnly), runtime)
	for _, part := range []func(context.Context, *strings.Builder) error{b.clones, b.patterns, b.changes} {
		if err := part(ctx, &text); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

type bench struct {
	driver     *localdisk.Driver
	dir, point string
	runtime    time.Duration
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (b *bench) create(ctx context.Context, name string, bytes int64, source *csi.VolumeContentSource) (string, error) {
	made, err := b.driver.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability()}, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		VolumeContentSource: source,
	})
	return made.GetVolume().GetVolumeId(), err
}

// use gives work the path of a volume's device.
func (b *bench) use(ctx context.Context, volume string, work func(device string) error) error {
	staging, target := filepath.Join(b.dir, "staging"), filepath.Join(b.dir, "device")
	if _, err := b.driver.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: staging, VolumeCapability: capability(),
	}); err != nil {
		return err
	}
	if _, err := b.driver.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: staging, TargetPath: target, VolumeCapability: capability(),
	}); err != nil {
		return err
	}
	err := work(target)
	after := context.WithoutCancel(ctx)
	if _, uerr := b.driver.NodeUnpublishVolume(after, &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: target}); err == nil {
		err = uerr
	}
	if _, uerr := b.driver.NodeUnstageVolume(after, &csi.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: staging}); err == nil {
		err = uerr
	}
	return err
}

func run(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w: %s", args, err, out)
	}
	return nil
}
