//go:build host

package transfer

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
)

// mutations returns how many changed files there are of each real one; BERTH_MUTATIONS asks for more manually.
func mutations(t *testing.T) int {
	t.Helper()
	const few = 60
	text := os.Getenv("BERTH_MUTATIONS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// damage changes a file in one to three places: more often near its beginning, where the tables are.
func damage(p []byte, rng *rand.Rand) []byte {
	p = bytes.Clone(p)
	for range 1 + rng.IntN(3) {
		at := rng.IntN(len(p))
		if rng.IntN(2) == 0 {
			at = rng.IntN(min(len(p), 1<<rng.IntN(18)))
		}
		n := min(1+rng.IntN(64), len(p)-at)
		switch rng.IntN(8) {
		case 0, 1:
			p[at] ^= 1 << rng.IntN(8)
		case 2:
			p[at] = byte(rng.Uint32())
		case 3:
			clear(p[at : at+n])
		case 4:
			for i := range n {
				p[at+i] = 0xff
			}
		case 5:
			copy(p[at:at+n], p[rng.IntN(len(p)-n+1):])
		case 6:
			p = slices.Delete(p, at, at+n)
		case 7:
			p = p[:max(1, at)]
		}
		if len(p) == 0 {
			return []byte{0}
		}
	}
	return p
}

// reference is a program that reads the same files. Its command writes the disk to OUT.
type reference struct {
	name    string
	make    string // shell commands that make IMAGE from DISK
	read    string
	format  string // as reports call it
	warning bool   // exit code 2 means that the data is good
}

var references = []reference{
	{"gzip -1", "gzip -1 -c DISK > IMAGE", "gzip -dc < IMAGE > OUT", "raw.gz", true},
	{"gzip -9 twice", "gzip -9 -c DISK > IMAGE; gzip -1 -c DISK >> IMAGE", "gzip -dc < IMAGE > OUT", "raw.gz", true},
	{"zstd", "zstd -q -c DISK > IMAGE", "zstd -q -dc < IMAGE > OUT", "raw.zst", false},
	{"zstd without a checksum", "zstd -q --no-check -c DISK > IMAGE", "zstd -q -dc < IMAGE > OUT", "raw.zst", false},
	{"zstd -19 in frames", "zstd -q -19 --no-check -c DISK > IMAGE; zstd -q -1 --no-check -c DISK >> IMAGE", "zstd -q -dc < IMAGE > OUT", "raw.zst", false},
	{"xz", "xz -c DISK > IMAGE", "xz -dc < IMAGE > OUT", "raw.xz", false},
	{"xz without a checksum", "xz -1 -C none -c DISK > IMAGE", "xz -dc < IMAGE > OUT", "raw.xz", false},
	{"xz in blocks", "xz -0 -C none --block-size=64KiB -c DISK > IMAGE", "xz -dc < IMAGE > OUT", "raw.xz", false},
	qemu("qcow2", ""), qemu("qcow2", "-o compat=0.10"), qemu("qcow2", "-c"), qemu("qcow2", "-c -o compression_type=zstd"),
	qemu("qcow2", "-o cluster_size=4096"), qemu("qcow2", "-o extended_l2=on"),
	qemu("vmdk", ""), qemu("vmdk", "-o subformat=streamOptimized"), qemu("vdi", ""), qemu("vpc", "-o force_size=on"),
	qemu("vpc", "-o subformat=fixed,force_size=on"), qemu("vhdx", ""),
}

func qemu(kind, options string) reference {
	return reference{
		name: kind + " " + options, make: "qemu-img convert -q -f raw -O " + kind + " " + options + " DISK IMAGE",
		read: "qemu-img convert -q -f " + kind + " -O raw IMAGE OUT", format: strings.Replace(kind, "vpc", "vhd", 1),
	}
}

// shell runs a command with the files' names in it; accepted says whether the program took what it read.
func (r reference) shell(t *testing.T, command, dir string) (accepted bool) {
	t.Helper()
	const patience = 2 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -f 2097152; cd "$0"; `+command, dir)
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%q does not end", command)
	}
	return err == nil || r.warning && cmd.ProcessState.ExitCode() == 2
}

// TestMutatedFiles changes files that the real programs made, and reads each with the program and with our own decoders: both
// have the same bytes, or both refuse. We may refuse more, with a reason: QEMU reads zeroes beyond the end of a file that was cut.
// What only the program refuses must not concern the disk, which then has every byte that it began with.
func TestMutatedFiles(t *testing.T) {
	const size = 1 << 20
	disk := make([]byte, size)
	copy(disk, disktest.Text(size/2, 11))
	copy(disk[size*3/4:], disktest.Noise(size/8, 12))
	for _, r := range references {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.compare(t, disk)
		})
	}
}

func (r reference) compare(t *testing.T, disk []byte) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, p []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("DISK", disk)
	if !r.shell(t, r.make, dir) {
		t.Fatalf("%q does not work", r.make)
	}
	image, err := os.ReadFile(filepath.Join(dir, "IMAGE"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for seed := range mutations(t) {
		changed := image
		if seed > 0 { // the first is as it was made
			changed = damage(image, rand.New(rand.NewPCG(uint64(seed), 5)))
		}
		write("IMAGE", changed)
		_ = os.Remove(filepath.Join(dir, "OUT"))
		theirs := r.shell(t, r.read, dir)
		to := filepath.Join(dir, "OURS")
		got := New(task.Task{Version: task.Version, Source: task.Source{Local: &task.Local{Path: filepath.Join(dir, "IMAGE")}},
			Target: task.Target{Path: to, Content: task.Disk}}).Run(t.Context())
		what := r.judge(t, dir, theirs, got)
		if seed == 0 && what != "the same" {
			t.Fatalf("the file as it was made: %s, %+v", what, got)
		}
		count[what]++
		if what == "different" || what == "only we accept" {
			t.Errorf("mutation %d: %s: %+v", seed, what, got)
		}
		_ = os.Remove(to)
	}
	t.Logf("%v", count)
}

func (r reference) judge(t *testing.T, dir string, theirs bool, got task.Report) string {
	t.Helper()
	switch ours := got.Outcome == task.Done; {
	case ours && got.Format != r.format:
		return "of another format"
	case !theirs && !ours:
		return "both refuse"
	case theirs && !ours:
		if got.Outcome != task.Fatal || got.Detail == "" {
			t.Errorf("refused without a reason: %+v", got)
		}
		return "only we refuse"
	case !theirs && sameFile(t, filepath.Join(dir, "DISK"), filepath.Join(dir, "OURS")):
		return "only we accept, and lose nothing"
	case !theirs:
		return "only we accept"
	case sameFile(t, filepath.Join(dir, "OUT"), filepath.Join(dir, "OURS")):
		return "the same"
	}
	return "different"
}

// sameFile compares two files; zeroes at the end of one are nothing.
func sameFile(t *testing.T, one, other string) bool {
	t.Helper()
	a, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(bytes.TrimRight(a, "\x00"), bytes.TrimRight(b, "\x00"))
}
