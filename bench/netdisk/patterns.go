package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
)

// pattern is one way to use a disk.
type pattern struct {
	name, kind, size, depth string
	unit                    string
	scale                   float64 // of the unit
}

var patterns = []pattern{
	{"read 1M", "read", "1M", "4", "MB/s", 1e6},
	{"write 1M", "write", "1M", "4", "MB/s", 1e6},
	{"randread 4k", "randread", "4k", "16", "MB/s", 1e6},
	{"randwrite 4k", "randwrite", "4k", "16", "MB/s", 1e6},
}

// fio gives bytes a second.
func (b *bench) fio(ctx context.Context, s *side, p pattern) (float64, error) {
	out, err := exec.CommandContext(ctx, "fio", "--name=bench", "--ioengine=nbd", "--uri=nbd+unix:///disk?socket="+s.socket, "--rw="+p.kind, "--bs="+p.size,
		"--iodepth="+p.depth, fmt.Sprintf("--size=%d", diskSize), "--time_based", fmt.Sprintf("--runtime=%gs", b.seconds.Seconds()), "--output-format=json").Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			return 0, fmt.Errorf("fio: %w: %s", err, failed.Stderr)
		}
		return 0, err
	}
	var report struct {
		Jobs []struct {
			Read, Write struct {
				Bytes float64 `json:"bw_bytes"`
			}
		} `json:"jobs"`
	}
	out = out[max(0, bytes.IndexByte(out, '{')):] // it may have something to say first
	if err := json.Unmarshal(out, &report); err != nil || len(report.Jobs) != 1 {
		return 0, fmt.Errorf("read fio's report: %w: %s", err, out)
	}
	return report.Jobs[0].Read.Bytes + report.Jobs[0].Write.Bytes, nil
}
