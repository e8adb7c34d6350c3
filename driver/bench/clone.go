package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// clones measures a clone of 10 GiB with 5 GiB of data.
func (b *bench) clones(ctx context.Context, text *strings.Builder) error {
	const data = 5 * gib
	source, err := b.create(ctx, "source", 10*gib, nil)
	if err != nil {
		return err
	}
	if err := b.use(ctx, source, func(device string) error {
		return run(ctx, "fio", "--name=fill", "--filename="+device, "--rw=write", "--bs=1M", "--direct=1", "--ioengine=libaio", "--iodepth=8",
			fmt.Sprintf("--size=%d", int64(data)), "--refill_buffers")
	}); err != nil {
		return err
	}
	images, err := filepath.Glob(filepath.Join(b.point, "volumes", "*", "disk.img"))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("the pool has images %q: %w", images, err)
	}
	from := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source}}}
	fmt.Fprintf(text, "\n| clone of 10 GiB with 5 GiB of data | seconds |\n|---|---|\n")
	for _, way := range []struct {
		name string
		do   func() error
	}{
		{"the driver", func() error {
			_, err := b.create(ctx, "clone", 10*gib, from)
			return err
		}},
		{"cp --reflink=always, synced", func() error { return copied(ctx, images[0], filepath.Join(b.point, "reflink"), "always") }},
		{"cp --reflink=never, synced", func() error { return copied(ctx, images[0], filepath.Join(b.point, "plain"), "never") }},
	} {
		if err := run(ctx, "sync", "-f", b.point, b.dir); err != nil { // earlier writes are not part of the measurement
			return err
		}
		began := time.Now()
		if err := way.do(); err != nil {
			return err
		}
		fmt.Fprintf(text, "| %s | %.3f |\n", way.name, time.Since(began).Seconds())
	}
	return run(ctx, "rm", filepath.Join(b.point, "plain"), filepath.Join(b.point, "reflink"))
}

// copied copies a file as cp does it, and waits until the copy is on the disk, as the driver does.
func copied(ctx context.Context, from, to, reflink string) error {
	if err := run(ctx, "cp", "--reflink="+reflink, from, to); err != nil {
		return err
	}
	return run(ctx, "sync", to)
}
