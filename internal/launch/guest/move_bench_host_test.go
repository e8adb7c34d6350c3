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
	"strconv"
	"strings"
	"testing"
	"time"

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

// BenchmarkMove moves an idle guest with a sparse disk of 10 GiB that holds 1 GiB, and the same data as a plain file.
func BenchmarkMove(b *testing.B) {
	for range b.N {
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
		plain := w.plain(data)
		target := w.target("2", "b", "bench")
		keys(b, "bench", source, target)
		target.stage(launch.MoveWaits)
		before, began := w.crossed(), time.Now()
		source.move(launch.Move{ID: "bench", Disks: []string{"local"}, To: target.address, Pod: "2"})
		memory := int64(0)
		for running := true; running; {
			select {
			case <-source.ended:
				running = false
			case <-time.After(200 * time.Millisecond):
				memory = max(memory, source.most(), target.most())
			}
		}
		r := source.report()
		if r.End != launch.Moved {
			b.Fatalf("the source ended with %+v", r)
		}
		target.stage(launch.MoveRuns)
		took := time.Since(began)
		b.ReportMetric(float64(r.Pause), "pause-ms")
		b.ReportMetric(took.Seconds(), "move-s")
		b.ReportMetric(plain.Seconds(), "plain-s")
		b.ReportMetric(plain.Seconds()/took.Seconds(), "of-plain")
		b.ReportMetric(float64(w.crossed()-before)/float64(1<<30), "sent-GiB")
		b.ReportMetric(float64(memory)/float64(1<<20), "launcher-MiB")
		target.kill()
	}
}
