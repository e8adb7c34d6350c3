//go:build host

package guest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"

	"github.com/berth-vm/berth/internal/launch"
)

// asPeer in the environment makes this program one side of a plain copy over the TLS that moves use: "send" or "take".
const asPeer = "BERTH_TEST_PEER"

// bePeer copies a file: its arguments are the keys' directory, the file and the address.
func bePeer() int {
	dir, file, address := os.Args[1], os.Args[2], os.Args[3]
	err := func() error {
		if os.Getenv(asPeer) == "send" {
			return sendFile(dir, file, address)
		}
		return takeFile(dir, file, address)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func sendFile(dir, file, address string) error {
	k, err := moveKeys(dir, "plain", launch.MoveSource)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return moveTarget{address: address, keys: k}.tell(context.Background(), fmt.Sprintf("%s x %d", toImage, info.Size()), f)
}

func takeFile(dir, file, address string) error {
	k, err := moveKeys(dir, "plain", launch.MoveTarget)
	if err != nil {
		return err
	}
	l, err := listen(context.Background(), address, k)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	box := inbox{image: func(_ string, _ int64, from io.Reader) error {
		f, err := os.Create(file)
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{f}, from, make([]byte, 256<<10))
		}
		done <- err
		return err
	}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go box.serve(ctx, l)
	fmt.Fprintln(os.Stdout, "ready")
	err = <-done
	<-time.After(time.Second) // the answer is on its way
	return err
}

const (
	benchDisk = 10 << 30
	benchData = 1 << 30
)

// plain is how long the data takes as one file over the same network and the same TLS.
func (w *world) plain(from string) time.Duration {
	w.t.Helper()
	side := func(n string) *pod { return &pod{t: w.t, dir: filepath.Join(w.dir, "plain-"+n)} }
	a, b := side("a"), side("b")
	for _, p := range []*pod{a, b} {
		if err := os.MkdirAll(filepath.Join(p.dir, "run/move"), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	keys(w.t, "plain", a, b)
	const address = "10.98.0.2:9000"
	peer := func(n, role, dir, file string) *exec.Cmd {
		c := exec.Command("ip", "netns", "exec", w.name+n, os.Args[0], filepath.Join(dir, "run/move"), file, address)
		c.Env, c.Stderr = append(os.Environ(), asPeer+"="+role), os.Stderr
		return c
	}
	taker := peer("b", "take", b.dir, filepath.Join(b.dir, "copy"))
	out, err := taker.StdoutPipe()
	if err == nil {
		err = taker.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		w.t.Fatal(err)
	}
	began := time.Now()
	if err := peer("a", "send", a.dir, from).Run(); err != nil {
		w.t.Fatal(err)
	}
	took := time.Since(began)
	if err := taker.Wait(); err != nil {
		w.t.Fatal(err)
	}
	return took
}

// crossed is how many bytes have left node a.
func (w *world) crossed() int64 {
	w.t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(tool(w.t, "ip", "netns", "exec", w.name+"a", "cat", "/sys/class/net/mv0/statistics/tx_bytes")), 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// most is the most memory that a launcher itself, not its QEMU, has had, in bytes.
func (n *pod) most() int64 {
	n.t.Helper()
	out, _ := exec.Command("sh", "-c", fmt.Sprintf("for p in /proc/[0-9]*; do [ \"$(readlink $p/exe)\" = %s ] && grep VmHWM $p/status; done", filepath.Join(n.dir, "launcher"))).Output()
	kib := int64(0)
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 1 {
			v, _ := strconv.ParseInt(f[1], 10, 64)
			kib = max(kib, v)
		}
	}
	return kib << 10
}

// spans is how long the parts of a move took.
type spans struct{ disks, all time.Duration }

// watch follows a move from outside, through the libvirt of its source. Its disks are sent from when libvirt first counts what is to be sent
// of them until it first counts memory: memory comes when every disk is there. A look takes less than a millisecond.
func (n *pod) watch(began time.Time) (got spans, memory int64) {
	n.t.Helper()
	virt := libvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(filepath.Join(n.dir, "run/state/runtime/libvirt/libvirt-sock"))))
	if err := virt.ConnectToURI(libvirt.QEMUSession); err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = virt.Disconnect() }()
	all, _, err := virt.ConnectListAllDomains(1, libvirt.ConnectListDomainsActive)
	if err != nil || len(all) != 1 {
		n.t.Fatalf("the guests of %s are %v: %v", n.dir, all, err)
	}
	var from, to time.Time
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for look := 0; ; look++ {
		select {
		case <-n.ended:
			if from.IsZero() || to.IsZero() {
				n.t.Fatalf("no disk was seen to be sent (from %v to %v)", from, to)
			}
			return spans{disks: to.Sub(from), all: time.Since(began)}, memory
		case <-tick.C:
		}
		if look%20 == 0 {
			memory = max(memory, n.most())
		}
		_, stats, err := virt.DomainGetJobStats(all[0], 0)
		if err != nil {
			continue // it has not begun, or has ended
		}
		count := map[string]uint64{}
		for _, f := range stats {
			if v, ok := f.Value.I.(uint64); ok {
				count[f.Field] = v
			}
		}
		switch now := time.Now(); {
		case from.IsZero() && count["disk_total"] > 0:
			from = now
		case !from.IsZero() && to.IsZero() && count["memory_processed"] > 0:
			to = now
		}
	}
}

// moved is one round of the bench.
type moved struct {
	spans
	plain, pause time.Duration
	sent, memory int64
}

// rate is how fast the disks were sent, of how fast the plain copy was.
func (m moved) rate() float64 { return m.plain.Seconds() / m.disks.Seconds() }

func benchMove(b *testing.B) moved {
	b.Helper()
	w := newWorld(b)
	data := filepath.Join(w.dir, "data")
	f, err := os.Create(data)
	if err == nil {
		_, err = io.CopyN(f, rand.Reader, benchData)
	}
	if err != nil {
		b.Fatal(err)
	}
	_ = f.Close()
	w.fill = func(dir string) {
		disk := filepath.Join(dir, "local", "disk.img")
		tool(b, "cp", data, disk)
		tool(b, "truncate", "-s", strconv.Itoa(benchDisk), disk)
	}
	source := w.boot("1", "a")
	got := moved{plain: w.plain(data)}
	target := w.target("2", "b", "bench")
	keys(b, "bench", source, target)
	target.stage(launch.MoveWaits)
	before := w.crossed()
	source.move(launch.Move{ID: "bench", Disks: []string{"local"}, To: target.address, Pod: "2"})
	got.spans, got.memory = source.watch(time.Now())
	r := source.report()
	if r.End != launch.Moved {
		b.Fatalf("the source ended with %+v", r)
	}
	target.stage(launch.MoveRuns)
	got.memory = max(got.memory, target.most())
	got.sent, got.pause = w.crossed()-before, time.Duration(r.Pause)*time.Millisecond
	target.kill()
	return got
}

// results in the environment is the file that BenchmarkMove writes what it measured to.
const results = "BERTH_BENCH_RESULTS"

const benchRounds = 3

// BenchmarkMove moves an idle guest with a sparse disk of 10 GiB that holds 1 GiB, and the same data as a plain file.
func BenchmarkMove(b *testing.B) {
	var rounds []moved
	for i := range benchRounds {
		b.Run(strconv.Itoa(i), func(b *testing.B) {
			m := benchMove(b)
			rounds = append(rounds, m)
			b.ReportMetric(float64(m.pause.Milliseconds()), "pause-ms")
			b.ReportMetric(m.all.Seconds(), "move-s")
			b.ReportMetric(m.disks.Seconds(), "disks-s")
			b.ReportMetric(m.plain.Seconds(), "plain-s")
			b.ReportMetric(m.rate(), "of-plain")
			b.ReportMetric(float64(m.sent)/(1<<30), "sent-GiB")
			b.ReportMetric(float64(m.memory)/(1<<20), "launcher-MiB")
		})
	}
	if path := os.Getenv(results); path != "" && len(rounds) == benchRounds {
		if err := os.WriteFile(path, []byte(benchText(rounds)), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

func benchText(rounds []moved) string {
	median := func(of func(moved) float64) float64 {
		all := make([]float64, 0, len(rounds))
		for _, m := range rounds {
			all = append(all, of(m))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return fmt.Sprintf(`# A move beside a plain copy over the same mutual TLS

Measured %s, emulated, both nodes on one machine with %d processors; medians of %d rounds. An idle guest of 192 MiB with a sparse disk of
10 GiB that holds 1 GiB. The disk is sent from its first byte until all of it is there, while the guest runs; the plain copy is one file of
1 GiB over one connection with the same keys, from a launcher's program to another, without QEMU. `+"`make bench-move`"+`

| | | goal |
|---|---|---|
| how long the guest stood still | %.0f ms | 500 ms |
| the disk | %.2f s | |
| the plain copy | %.2f s | |
| how fast the disk was sent, of the plain copy | %.2f | 0.8 |
| sent in all, memory included | %.2f GiB | about 1 GiB |
| the whole move, from the order on | %.2f s | |
| most memory of a launcher without its QEMU | %.0f MiB | bounded |
`, time.Now().Format(time.DateOnly), runtime.NumCPU(), len(rounds), median(func(m moved) float64 { return float64(m.pause.Milliseconds()) }),
		median(func(m moved) float64 { return m.disks.Seconds() }), median(func(m moved) float64 { return m.plain.Seconds() }), median(moved.rate),
		median(func(m moved) float64 { return float64(m.sent) / (1 << 30) }), median(func(m moved) float64 { return m.all.Seconds() }),
		median(func(m moved) float64 { return float64(m.memory) / (1 << 20) }))
}
