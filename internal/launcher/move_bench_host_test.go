//go:build host

package launcher

import (
	"bufio"
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

	"github.com/berth-vm/berth/internal/launcher/movelink"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/testing/hosttool"
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
	k, err := movelink.Keys(dir, "plain", launcherapi.MoveSource)
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
	return movelink.Target{Address: address, Keys: k}.Tell(context.Background(), fmt.Sprintf("%s x %d", movelink.Image, info.Size()), f)
}

func takeFile(dir, file, address string) error {
	k, err := movelink.Keys(dir, "plain", launcherapi.MoveTarget)
	if err != nil {
		return err
	}
	l, err := movelink.Listen(context.Background(), address)
	if err != nil {
		return err
	}
	var synced time.Duration
	done := make(chan error, 1)
	box := movelink.Inbox{Keys: k, Image: func(_ string, _ int64, from io.Reader) error {
		f, err := os.Create(file)
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{f}, from, make([]byte, 256<<10))
		}
		if err == nil {
			written := time.Now()
			err = f.Sync() // as a mirror does before it says that everything is there
			synced = time.Since(written)
		}
		done <- err
		return err
	}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go box.Serve(ctx, l)
	fmt.Fprintln(os.Stdout, "ready")
	err = <-done
	fmt.Fprintln(os.Stdout, synced)
	<-time.After(time.Second) // the answer is on its way
	return err
}

const (
	benchDisk = 10 << 30
	benchData = 1 << 30
)

// plain is how long the data takes as one file over the same network and the same TLS until the other side has it on its disk, and how long
// the last of that took: until then a mirror is not done either.
func (w *world) plain(from string) (took, synced time.Duration) {
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
	said := bufio.NewScanner(out)
	if !said.Scan() {
		w.t.Fatalf("the taker is not ready: %v", said.Err())
	}
	began := time.Now()
	if err := peer("a", "send", a.dir, from).Run(); err != nil {
		w.t.Fatal(err)
	}
	took = time.Since(began)
	if !said.Scan() {
		w.t.Fatalf("the taker does not say how long the disk took: %v", said.Err())
	}
	if synced, err = time.ParseDuration(said.Text()); err != nil {
		w.t.Fatal(err)
	}
	if err := taker.Wait(); err != nil {
		w.t.Fatal(err)
	}
	return took, synced
}

// crossed is how many bytes have left the node of this process, and received how many have come there.
func (n *pod) crossed(process string) int64  { return n.network(process, 8) }
func (n *pod) received(process string) int64 { return n.network(process, 0) }

func (n *pod) network(process string, field int) int64 {
	n.t.Helper()
	text, _ := os.ReadFile(filepath.Join(process, "net/dev")) // the process may have ended
	_, rest, _ := strings.Cut(string(text), "mv0:")
	f := strings.Fields(rest)
	if len(f) < 9 {
		return 0
	}
	count, err := strconv.ParseInt(f[field], 10, 64)
	if err != nil {
		n.t.Fatal(err)
	}
	return count
}

// own are the processes of a launcher itself, not its QEMU. They are looked for once: looking at every process of a machine takes time that
// the move is to have.
func (n *pod) own() []string {
	n.t.Helper()
	var own []string
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, dir := range all {
		if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil && exe == filepath.Join(n.dir, "launcher") {
			own = append(own, dir)
		}
	}
	return own
}

// cost is the memory in bytes and the processor time that a launcher itself took.
type cost struct {
	memory int64
	ran    time.Duration
}

// spent adds what these processes have used so far. A process that has ended cannot be measured, so its last measurement counts.
func (c *cost) spent(processes []string) {
	ran := time.Duration(0)
	for _, dir := range processes {
		text, _ := os.ReadFile(filepath.Join(dir, "status"))
		_, rest, _ := strings.Cut(string(text), "VmHWM:")
		if f := strings.Fields(rest); len(f) > 0 {
			kib, _ := strconv.ParseInt(f[0], 10, 64)
			c.memory = max(c.memory, kib<<10)
		}
		text, _ = os.ReadFile(filepath.Join(dir, "stat"))
		_, rest, _ = strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 12 {
			user, _ := strconv.ParseInt(f[11], 10, 64)
			system, _ := strconv.ParseInt(f[12], 10, 64)
			ran += time.Duration(user+system) * time.Second / 100
		}
	}
	c.ran = max(c.ran, ran)
}

// spans is how long the parts of a move took.
type spans struct{ disks, all time.Duration }

// little is less than what a disk sends at once, and more than what two launchers have to say to each other before.
const little = 4 << 20

// watch follows a move from outside. Its disks are sent from when something crosses the network until the libvirt of its source first counts
// memory: memory comes when every disk is there. A look takes less than a millisecond, unless libvirt has other things to do; so when they
// begin is not for libvirt to say.
func (n *pod) watch(began time.Time) (got spans, of cost) {
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
	own := n.own()
	if len(own) == 0 {
		n.t.Fatalf("%s has no launcher", n.dir)
	}
	before := n.crossed(own[0])
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for look := 0; ; look++ {
		select {
		case <-n.ended:
			if from.IsZero() || to.IsZero() {
				n.t.Fatalf("no disk was seen to be sent (from %v to %v)", from, to)
			}
			return spans{disks: to.Sub(from), all: time.Since(began)}, of
		case <-tick.C:
		}
		if from.IsZero() && n.crossed(own[0])-before > little {
			from = time.Now()
		}
		if look%10 == 0 {
			of.spent(own)
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
		if to.IsZero() && count["memory_processed"] > 0 {
			to = time.Now()
		}
	}
}

// moved is one round of the bench.
type moved struct {
	spans
	plain, bare  time.Duration
	synced       time.Duration // of plain
	pause        time.Duration
	sent, memory int64
	ran          time.Duration
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
		hosttool.Run(b, "cp", data, disk)
		hosttool.Run(b, "truncate", "-s", strconv.Itoa(benchDisk), disk)
	}
	source := w.boot("1", "a")
	got := moved{bare: w.bare(data)}
	got.plain, got.synced = w.plain(data)
	target := w.target("2", "b", "bench")
	keys(b, "bench", source, target)
	target.stage(launcherapi.MoveWaits)
	there := target.own()
	if len(there) == 0 {
		b.Fatalf("%s has no launcher", target.dir)
	}
	before := target.received(there[0])
	source.move(launcherapi.Move{ID: "bench", Disks: []string{"local"}, To: target.address, Pod: "2"})
	var here, far cost
	got.spans, here = source.watch(time.Now())
	r := source.report()
	if r.End != launcherapi.Moved {
		b.Fatalf("the source ended with %+v", r)
	}
	target.stage(launcherapi.MoveRuns)
	far.spent(there)
	got.memory, got.ran = max(here.memory, far.memory), here.ran+far.ran
	got.sent, got.pause = target.received(there[0])-before, time.Duration(r.Pause)*time.Millisecond
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
			b.ReportMetric(m.synced.Seconds(), "sync-s")
			b.ReportMetric(m.bare.Seconds(), "bare-s")
			b.ReportMetric(m.ran.Seconds(), "launchers-cpu-s")
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
	seconds := func(of func(moved) time.Duration) float64 {
		return median(func(m moved) float64 { return of(m).Seconds() })
	}
	return fmt.Sprintf(`# A move beside a plain copy over the same mutual TLS

Measured %s, emulated, both nodes on one machine with %d processors; medians of %d rounds. An idle guest of 192 MiB with a sparse disk of
10 GiB that holds 1 GiB. The disk is sent from its first byte until all of it is there, while the guest runs; the plain copy is one file of
1 GiB over one connection with the same keys, from a launcher's program to another, without QEMU. Both end when the data is on the target's
disk, not only in its memory: QEMU says of no mirror before that it is there. QEMU alone is the same mirror from one process to another
through a local socket, with no network, TLS, relay or guest. `+"`make bench-move`"+`

| | | goal |
|---|---|---|
| how long the guest stood still | %.0f ms | 500 ms |
| the disk | %.2f s | |
| the plain copy | %.2f s | |
| of that, until the target's disk had what was written | %.2f s | |
| QEMU alone | %.2f s | |
| how fast the disk was sent, of the plain copy | %.2f | 0.8 |
| of a plain copy that nobody waits for to be on the disk | %.2f | |
| of QEMU alone | %.2f | |
| sent in all, memory included | %.2f GiB | about 1 GiB |
| the whole move, from the order on | %.2f s | |
| most memory of a launcher without its QEMU | %.0f MiB | bounded |
| processor time of both launchers without their QEMUs | %.2f s | |
`, time.Now().Format(time.DateOnly), runtime.NumCPU(), len(rounds), median(func(m moved) float64 { return float64(m.pause.Milliseconds()) }),
		seconds(func(m moved) time.Duration { return m.disks }), seconds(func(m moved) time.Duration { return m.plain }),
		seconds(func(m moved) time.Duration { return m.synced }), seconds(func(m moved) time.Duration { return m.bare }), median(moved.rate),
		median(func(m moved) float64 { return (m.plain - m.synced).Seconds() / m.disks.Seconds() }),
		median(func(m moved) float64 { return m.bare.Seconds() / m.disks.Seconds() }),
		median(func(m moved) float64 { return float64(m.sent) / (1 << 30) }), seconds(func(m moved) time.Duration { return m.all }),
		median(func(m moved) float64 { return float64(m.memory) / (1 << 20) }), seconds(func(m moved) time.Duration { return m.ran }))
}
