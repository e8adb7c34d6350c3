//go:build host

package transfer

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
)

// TestByHand restores a backup with the commands of docs/reference/backup-format.md, which also find a file that is not the one that was written.
func TestByHand(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/backup-format.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```sh\n(set -e.*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatal("the page has no commands")
	}
	h := newHistory(t, 12<<20+512, 5)
	h.write(30)
	for n := range 4 {
		h.back()
		if n == 1 {
			h.grow(block)
		}
		h.write(8)
	}
	raw := filepath.Join(t.TempDir(), "raw")
	restore := func() ([]byte, error) {
		cmd := exec.Command("bash", "-c", string(script[1]))
		cmd.Env = append(os.Environ(), "SET="+h.set, "CHECKPOINT="+checkpoint(3), "DISK=root", "RAW="+raw)
		return cmd.CombinedOutput()
	}
	if out, err := restore(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantMoment(t, raw, h.moments[3])
	for n := range 4 {
		command(t, "qemu-img", "check", "-q", filepath.Join(h.set, checkpoint(n), "root.qcow2"))
	}
	path := filepath.Join(h.set, checkpoint(1), "root.qcow2")
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, flip(-1)(p), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := restore(); err == nil {
		t.Errorf("a changed file was accepted: %s", out)
	}
}

// qemuChain is a chain that qemu-img and qemu-io make, as the tools outside do.
type qemuChain struct {
	t     *testing.T
	dir   string
	rng   *rand.Rand
	size  int64
	files []string
}

// add makes the next file, over the one before: with the name of that in it or without.
func (q *qemuChain) add(options string, named bool) {
	q.t.Helper()
	n := len(q.files)
	path := filepath.Join(q.dir, fmt.Sprintf("%d.qcow2", n))
	if n > 0 {
		q.size += int64(q.rng.IntN(3)) * 512 * 300
	}
	command(q.t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", options, path, fmt.Sprint(q.size))
	var script strings.Builder
	for range 30 {
		at, size := q.rng.Int64N(q.size/512), 1+q.rng.Int64N(300)
		size = min(size, q.size/512-at)
		switch q.rng.IntN(4) {
		case 0:
			fmt.Fprintf(&script, "write -z %d %d\n", at*512, size*512)
		case 1:
			fmt.Fprintf(&script, "discard %d %d\n", at*512, size*512)
		default:
			fmt.Fprintf(&script, "write -P %d %d %d\n", 1+q.rng.IntN(255), at*512, size*512)
		}
	}
	// A write to a part of a cluster brings the rest from below, so what is below has to be open.
	cmd := exec.Command("qemu-io", q.options(append(q.files, path)))
	cmd.Stdin = strings.NewReader(script.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		q.t.Fatalf("qemu-io: %v\n%s", err, out)
	}
	if named && n > 0 {
		command(q.t, "qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", filepath.Base(q.files[n-1]), path)
	}
	q.files = append(q.files, path)
}

// options open the files as one disk, without a name in any of them.
func (q *qemuChain) options(files []string) string {
	node := "null"
	for _, f := range files {
		node = fmt.Sprintf(`{"driver":"qcow2","discard":"unmap","file":{"driver":"file","filename":%q},"backing":%s}`, f, node)
	}
	return "json:" + node
}

// TestChainsOfQEMU: random histories of ten links, in all shapes that qemu-img makes, come out as qemu-img reads them.
func TestChainsOfQEMU(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			q := &qemuChain{t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 9)), size: 9<<20 + 512*int64(seed)}
			shapes := []string{"cluster_size=64k", "cluster_size=64k", "cluster_size=4k", "cluster_size=2M", "extended_l2=on,cluster_size=64k"}
			for range 10 {
				options := shapes[0]
				if seed%2 == 1 {
					options = shapes[q.rng.IntN(len(shapes))]
				}
				q.add(options, seed%3 == 0)
			}
			want := filepath.Join(q.dir, "want")
			command(t, "qemu-img", "convert", "-O", "raw", q.options(q.files), want)
			expected, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			k := task.Task{Version: task.Version, Target: task.Target{Path: filepath.Join(t.TempDir(), "disk.img"), Content: task.Disk}}
			k.Source.Chain = &task.Chain{}
			for _, f := range q.files {
				k.Source.Chain.Files = append(k.Source.Chain.Files, task.Source{Local: &task.Local{Path: f}})
			}
			if r := New(k).Run(t.Context()); r.Outcome != task.Done {
				t.Fatalf("%+v", r)
			}
			wantMoment(t, k.Target.Path, expected)
		})
	}
}

// TestStagesOfQEMU: a chain that qemu-img makes is brought in stages, over a file and over a device, and is after each what qemu-img reads.
func TestStagesOfQEMU(t *testing.T) {
	q := &qemuChain{t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(3, 9)), size: 9 << 20}
	shapes := []string{"cluster_size=64k", "cluster_size=4k", "extended_l2=on,cluster_size=64k", "cluster_size=2M"}
	server := httptest.NewServer(http.FileServer(http.Dir(q.dir)))
	defer server.Close()
	file, device := filepath.Join(t.TempDir(), "disk.img"), loopDevice(t, 16<<20)
	for n, shape := range shapes {
		q.add(shape, n%2 == 1)
		want := filepath.Join(q.dir, "want")
		command(t, "qemu-img", "convert", "-O", "raw", q.options(q.files), want)
		expected, err := os.ReadFile(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{file, device} {
			current := filepath.Base(q.files[n])
			k := fromURL(server.URL+"/"+current, path)
			k.Claim, k.Checkpoint = "claim", &task.Checkpoint{Current: current}
			if path == file {
				k.Target.Size = 16 << 20
			}
			if n > 0 {
				k.Checkpoint.Previous = filepath.Base(q.files[n-1])
			}
			if r := New(k).Run(t.Context()); r.Outcome != task.Done {
				t.Fatalf("stage %d on %s: %+v", n, path, r)
			}
			wantMoment(t, path, expected)
		}
	}
}
