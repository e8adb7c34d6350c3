package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// What a delta is measured with, and what it may take.
const (
	deltaDisk    = 10 * gib
	deltaData    = gib // that much of the disk is written before; the rest is holes, which cost nothing
	deltaWrites  = 1000
	deltaWrite   = 64 << 10
	deltaSeconds = 0.5
	deltaRatio   = 1.1
)

// changes measures what changed between two snapshots of 10 GiB, and holds the answer against both images, byte by byte.
func (b *bench) changes(ctx context.Context, text *strings.Builder) error {
	volume, err := b.create(ctx, "changes", deltaDisk, nil)
	if err != nil {
		return err
	}
	var base, target string
	if err := b.use(ctx, volume, func(device string) (err error) {
		if err := run(ctx, "fio", "--name=fill", "--filename="+device, "--rw=write", "--bs=1M", "--direct=1", "--ioengine=libaio", "--iodepth=8",
			fmt.Sprintf("--size=%d", int64(deltaData)), "--refill_buffers"); err != nil {
			return err
		}
		if base, err = b.snapshot(ctx, "base", volume); err != nil {
			return err
		}
		if err := scatter(device); err != nil {
			return err
		}
		target, err = b.snapshot(ctx, "target", volume)
		return err
	}); err != nil {
		return err
	}
	began := time.Now()
	ranges, err := b.delta(ctx, base, target)
	if err != nil {
		return err
	}
	took := time.Since(began)
	changed, missed, err := b.check(ranges)
	if err != nil {
		return err
	}
	var reported int64
	for _, r := range ranges {
		reported += r.SizeBytes
	}
	fmt.Fprintf(text, "\n| delta of %d writes of %d KiB in %d GiB | | goal |\n|---|---|---|\n", deltaWrites, deltaWrite>>10, deltaDisk/gib)
	fmt.Fprintf(text, "| seconds | %.3f | <= %.1f |\n| ranges | %d | |\n", took.Seconds(), deltaSeconds, len(ranges))
	fmt.Fprintf(text, "| reported, of the bytes in blocks that differ | %.2f | <= %.1f |\n", float64(reported)/float64(changed), deltaRatio)
	fmt.Fprintf(text, "| blocks that differ and are not reported | %d | 0 |\n", missed)
	return nil
}

// scatter writes at random places all over a device.
func scatter(device string) error {
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same places in each run
	data := make([]byte, deltaWrite)
	for range deltaWrites {
		for n := range data {
			data[n] = byte(r.Uint32())
		}
		if _, err := f.WriteAt(data, r.Int64N(deltaDisk/deltaWrite)*deltaWrite); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

func (b *bench) snapshot(ctx context.Context, name, volume string) (string, error) {
	made, err := b.driver.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: volume})
	return made.GetSnapshot().GetSnapshotId(), err
}

// delta asks over the driver's socket, as a client does.
func (b *bench) delta(ctx context.Context, base, target string) ([]*csi.BlockMetadata, error) {
	socket := filepath.Join(b.dir, "csi.sock")
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	server := b.driver.Server()
	defer server.Stop()
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stream, err := csi.NewSnapshotMetadataClient(conn).GetMetadataDelta(ctx, &csi.GetMetadataDeltaRequest{BaseSnapshotId: base, TargetSnapshotId: target})
	if err != nil {
		return nil, err
	}
	var ranges []*csi.BlockMetadata
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return ranges, nil
		}
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, message.GetBlockMetadata()...)
	}
}

// check reads both snapshots: how many bytes are in blocks that differ, and how many such blocks are in no range.
func (b *bench) check(ranges []*csi.BlockMetadata) (changed, missed int64, err error) {
	const block = 4096
	var images [2]*os.File
	for n, name := range []string{"base", "target"} {
		if images[n], err = b.imageOf(name); err != nil {
			return 0, 0, err
		}
		defer images[n].Close()
	}
	const step = 1 << 20
	one, other := make([]byte, step), make([]byte, step)
	for at := int64(0); at < deltaDisk; at += step {
		if _, err := images[0].ReadAt(one, at); err != nil {
			return 0, 0, err
		}
		if _, err := images[1].ReadAt(other, at); err != nil {
			return 0, 0, err
		}
		for in := int64(0); in < step; in += block {
			if bytes.Equal(one[in:in+block], other[in:in+block]) {
				continue
			}
			changed += block
			for len(ranges) > 0 && ranges[0].ByteOffset+ranges[0].SizeBytes <= at+in {
				ranges = ranges[1:]
			}
			if len(ranges) == 0 || ranges[0].ByteOffset > at+in {
				missed++
			}
		}
	}
	return changed, missed, nil
}

// imageOf opens the image of the snapshot with a name.
func (b *bench) imageOf(name string) (*os.File, error) {
	records, err := filepath.Glob(filepath.Join(b.point, "snapshots", "*", "volume.json"))
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		text, err := os.ReadFile(r)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(text), fmt.Sprintf("%q: %q", "name", name)) {
			return os.Open(filepath.Join(filepath.Dir(r), "disk.img"))
		}
	}
	return nil, fmt.Errorf("there is no snapshot %s in %s", name, b.point)
}
