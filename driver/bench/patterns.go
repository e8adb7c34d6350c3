package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// goal is the share of the raw file's speed that a Block volume has to reach.
const goal = 0.9

// patterns measures a Block volume beside an image file, both with all their blocks written.
func (b *bench) patterns(ctx context.Context, text *strings.Builder) error {
	const bytes = 2 * gib
	raw := filepath.Join(b.point, "raw.img")
	if err := os.WriteFile(raw, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(raw, bytes); err != nil {
		return err
	}
	volume, err := b.create(ctx, "io", bytes, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(text, "\n| MB/s | image file | Block volume | ratio (goal %.1f) |\n|---|---|---|---|\n", goal)
	return b.use(ctx, volume, func(device string) error {
		for _, path := range []string{raw, device} {
			if err := run(ctx, "fio", "--name=fill", "--filename="+path, "--rw=write", "--bs=1M", "--direct=1", "--ioengine=libaio", "--iodepth=8",
				fmt.Sprintf("--size=%d", int64(bytes))); err != nil {
				return err
			}
		}
		for _, p := range []struct{ rw, bs string }{{"read", "1M"}, {"write", "1M"}, {"randread", "4k"}, {"randwrite", "4k"}} {
			var best [2]float64
			for range 2 { // in turns, the better one counts: the machine's mood is not the driver's
				for n, path := range []string{raw, device} {
					rate, err := b.fio(ctx, path, p.rw, p.bs)
					if err != nil {
						return err
					}
					best[n] = max(best[n], rate)
				}
			}
			fmt.Fprintf(text, "| %s %s | %.0f | %.0f | %.2f |\n", p.rw, p.bs, best[0], best[1], best[1]/best[0])
		}
		return nil
	})
}

// fio runs one pattern and returns its MB/s.
func (b *bench) fio(ctx context.Context, path, rw, bs string) (float64, error) {
	out, err := exec.CommandContext(ctx, "fio", "--name=x", "--filename="+path, "--rw="+rw, "--bs="+bs, "--direct=1", "--ioengine=libaio",
		"--iodepth=32", "--size=2G", "--time_based", fmt.Sprintf("--runtime=%d", int(b.runtime.Seconds())), "--output-format=json").Output()
	if err != nil {
		return 0, fmt.Errorf("fio %s %s: %w", rw, path, err)
	}
	var report struct {
		Jobs []struct{ Read, Write struct{ BW float64 } }
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Jobs) != 1 {
		return 0, fmt.Errorf("read fio's report of %s: %w", path, err)
	}
	return (report.Jobs[0].Read.BW + report.Jobs[0].Write.BW) * 1024 / 1e6, nil // fio counts KiB
}
