package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
	"github.com/berth-vm/berth/internal/testing/nbdtest"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// slowly serves p at some bytes a second, as version says, and counts what it served.
type slowly struct {
	p       []byte
	version atomic.Pointer[string]
	rate    atomic.Int64
	served  atomic.Int64
	gone    atomic.Bool
}

func newSlowly(t *testing.T, p []byte, rate int64) (*slowly, string) {
	t.Helper()
	s := &slowly{p: p}
	v := "1"
	s.version.Store(&v)
	s.rate.Store(rate)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

func (s *slowly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.gone.Load() {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", `"`+*s.version.Load()+`"`)
	http.ServeContent(&paced{w, s}, r, "disk", time.Time{}, bytes.NewReader(s.p))
}

type paced struct {
	http.ResponseWriter
	s *slowly
}

func (p *paced) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		m := min(len(b)-n, 16<<10)
		time.Sleep(time.Duration(int64(m) * int64(time.Second) / p.s.rate.Load())) //nolint:forbidigo // it is what the source is: slow
		k, err := p.ResponseWriter.Write(b[n : n+m])
		p.s.served.Add(int64(k))
		if n += k; err != nil {
			return n, err
		}
	}
	return len(b), nil
}

// used is an import whose disk is used.
type used struct {
	t      *testing.T
	task   task.Task
	work   *Transfer
	cancel context.CancelFunc
	report chan task.Report
	blob   source.Blob // instead of the task's source; nil: that
}

func use(t *testing.T, url string, change func(*task.Task)) *used {
	t.Helper()
	k := fromURL(url, filepath.Join(t.TempDir(), "disk.img"))
	k.Claim, k.Early = "claim-1", true
	if change != nil {
		change(&k)
	}
	u := &used{t: t, task: k}
	u.run()
	return u
}

// run starts a worker.
func (u *used) run() {
	ctx, cancel := context.WithCancel(u.t.Context())
	w := New(u.task)
	w.Every = 50 * time.Millisecond
	u.work, u.cancel, u.report = w, cancel, make(chan task.Report, 1)
	blob := u.blob
	go func() {
		if blob != nil {
			u.report <- w.RunFrom(ctx, blob)
			return
		}
		u.report <- w.Run(ctx)
	}()
}

// dial waits for the server.
func (u *used) dial() *nbdtest.Client {
	u.t.Helper()
	var r task.Report
	c := u.dialOrEnd(&r)
	if c == nil {
		u.t.Fatalf("it ended: %+v", r)
	}
	return c
}

// dialOrEnd waits for the server, or for the worker's report.
func (u *used) dialOrEnd(report *task.Report) *nbdtest.Client {
	u.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		c, err := nbdtest.Dial(earlyboot.Socket(u.task.Target.Path))
		if err == nil {
			return c
		}
		select {
		case *report = <-u.report:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			u.t.Fatalf("it is not served: %v", err)
		}
	}
}

// scribble writes and reads at random, and keeps a copy of what should be there.
func scribble(t *testing.T, c *nbdtest.Client, want []byte, rng *rand.Rand, times int) {
	t.Helper()
	for range times {
		n := 1 + rng.IntN(1<<(9+rng.IntN(9)))
		off := rng.IntN(len(want) - n)
		p := make([]byte, n)
		var err error
		switch rng.IntN(4) {
		case 0:
			disktest.Fill(p, rng.Uint64)
			copy(want[off:], p)
			err = c.Ask(nbdtest.Write, uint16(rng.IntN(8)/7), int64(off), n, p)
		case 1:
			clear(want[off : off+n])
			err = c.Ask(nbdtest.Zeroes, 0, int64(off), n, nil)
		case 2:
			if _, err = c.ReadAt(p, int64(off)); err == nil && !bytes.Equal(p, want[off:off+n]) {
				err = fmt.Errorf("%d bytes at %d are not what was written or imported", n, off)
			}
		default:
			err = c.Ask(nbdtest.Flush, 0, 0, 0, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func wantBytes(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("the disk has %d bytes, not %d", len(got), len(want))
	}
	for at := 0; at < len(got); at += 4096 {
		if end := min(at+4096, len(got)); !bytes.Equal(got[at:end], want[at:end]) {
			t.Fatalf("the page at %d differs", at)
		}
	}
}

// TestUsedWhileFilled: whatever a guest does while its disk is filled, it reads what it should, and the disk ends as the image
// with its writes, also when the worker ends in the middle.
func TestUsedWhileFilled(t *testing.T) {
	t.Parallel()
	image := disktest.Noise(12<<20+1000, 1)
	s, url := newSlowly(t, image, 8<<20)
	u := use(t, url, func(k *task.Task) { k.Target.Size, k.Checksum = 13<<20, sumOf(image) })
	want := append(bytes.Clone(image), make([]byte, 13<<20-len(image))...)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3 {
		c := u.dial()
		scribble(t, c, want, rng, 60)
		u.cancel() // a worker that is told to stop
		if r := <-u.report; r.Reason != task.Interrupted {
			t.Fatalf("report %+v", r)
		}
		_ = c.Close()
		u.run()
	}
	c := u.dial()
	scribble(t, c, want, rng, 60)
	s.rate.Store(1 << 40)
	for end := time.Now().Add(20 * time.Second); ; {
		if _, err := os.Stat(u.task.Target.Path); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it is not complete: %+v", u.work.Progress())
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // there is no event for it
	}
	scribble(t, c, want, rng, 60) // complete, and still served
	if e := u.work.Progress().Early; e == nil || !e.Serves || e.Clients != 1 {
		t.Errorf("progress says %+v", e)
	}
	if err := c.Leave(); err != nil {
		t.Fatal(err)
	}
	// on a slow machine the worker before has completed it already, and this one had nothing to read
	if r := <-u.report; r.Outcome != task.Done || r.Digest != sumOf(image) && r.Read > 0 {
		t.Fatalf("report %+v", r)
	}
	wantBytes(t, u.task.Target.Path, want)
	u.run() // killed before its report was read: it must not begin again, and needs no source
	s.gone.Store(true)
	again := u.dial()
	scribble(t, again, want, rng, 20)
	if err := again.Leave(); err != nil {
		t.Fatal(err)
	}
	if r := <-u.report; r.Outcome != task.Done {
		t.Fatalf("report %+v", r)
	}
	wantBytes(t, u.task.Target.Path, want)
}

// TestFetchedFirst: what the guest asks for comes before the rest, and little is fetched twice.
func TestFetchedFirst(t *testing.T) {
	t.Parallel()
	image := disktest.Noise(8<<20, 5)
	s, url := newSlowly(t, image, 1<<19)
	u := use(t, url, nil)
	c := u.dial()
	p := make([]byte, 4096)
	for _, off := range []int64{7 << 20, 8<<20 - 4096, 5 << 20} {
		if _, err := c.ReadAt(p, off); err != nil || !bytes.Equal(p, image[off:off+4096]) {
			t.Fatalf("at %d: %v, or other bytes", off, err)
		}
	}
	if done := u.work.Progress().Done; done > 6<<20 {
		t.Errorf("%d bytes are there: the pages came with the rest, not before it", done)
	}
	s.rate.Store(1 << 40)
	if err := c.Leave(); err != nil {
		t.Fatal(err)
	}
	r := <-u.report
	if r.Outcome != task.Done || r.Read > int64(len(image))*12/10 {
		t.Errorf("report %+v", r)
	}
	wantBytes(t, u.task.Target.Path, image)
}

// TestBadSourceOfAGuest: a disk that a guest has used is neither begun again nor deleted, whatever happens to its source, and a
// notice is left.
func TestBadSourceOfAGuest(t *testing.T) {
	t.Parallel()
	image := disktest.Noise(4<<20, 9)
	write := func(t *testing.T, u *used) {
		t.Helper()
		c := u.dial()
		if err := c.Ask(nbdtest.Write, 1, 1<<20, 5, []byte("mine!")); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	kept := func(t *testing.T, u *used) {
		t.Helper()
		part := filepath.Join(filepath.Dir(u.task.Target.Path), ".disk.img.berth-part")
		if b, err := os.ReadFile(part); err != nil || string(b[1<<20:1<<20+5]) != "mine!" {
			t.Errorf("what the guest wrote is gone: %v", err)
		}
	}
	t.Run("checksum", func(t *testing.T) {
		t.Parallel()
		s, url := newSlowly(t, image, 8<<20)
		u := use(t, url, func(k *task.Task) { k.Checksum = sumOf(image[1:]) })
		write(t, u)
		s.rate.Store(1 << 40)
		if r := <-u.report; r.Reason != task.ChecksumMismatch {
			t.Errorf("report %+v", r)
		}
		kept(t, u)
		if said := earlyboot.Verdict.Of(u.task.Target.Path); !strings.Contains(said, "checksum") {
			t.Errorf("the word is %q", said)
		}
	})
	t.Run("changed", func(t *testing.T) {
		t.Parallel()
		s, url := newSlowly(t, image, 2<<20)
		u := use(t, url, nil)
		write(t, u)
		u.cancel()
		<-u.report
		other, same := "2", "1"
		s.version.Store(&other)
		u.run()
		if r := <-u.report; r.Reason != task.SourceChanged {
			t.Errorf("report %+v", r)
		}
		kept(t, u)
		if said := earlyboot.Verdict.Of(u.task.Target.Path); !strings.Contains(said, "changed") {
			t.Errorf("the word is %q", said)
		}
		s.version.Store(&same) // it is back as it was
		s.rate.Store(1 << 40)
		u.task.Early = false // asked for no more, which does not matter
		u.run()
		_ = u.dial().Leave()
		if r := <-u.report; r.Outcome != task.Done {
			t.Errorf("report %+v", r)
		}
		if said := earlyboot.Verdict.Of(u.task.Target.Path); said != "" {
			t.Errorf("the word is still %q", said)
		}
	})
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		s, url := newSlowly(t, image, 2<<20)
		u := use(t, url, nil)
		write(t, u)
		u.cancel()
		<-u.report
		s.gone.Store(true)
		u.run()
		if r := <-u.report; r.Reason != task.SourceNotFound {
			t.Errorf("report %+v", r)
		}
		kept(t, u)
		if said := earlyboot.Verdict.Of(u.task.Target.Path); !strings.Contains(said, "404") || !strings.Contains(said, "tried again") {
			t.Errorf("the word is %q", said)
		}
	})
	t.Run("gone while it is read", func(t *testing.T) {
		t.Parallel()
		s, url := newSlowly(t, image, 2<<20)
		u := use(t, url, nil)
		write(t, u)
		s.gone.Store(true)
		c := u.dial() // what the guest asks for is not to be had any more, and the fill finds out with its next piece
		_, _ = c.ReadAt(make([]byte, 4096), 3<<20)
		s.rate.Store(1 << 40)
		if r := <-u.report; r.Reason != task.SourceNotFound && r.Outcome != task.Done {
			t.Errorf("report %+v", r)
		} else if said := earlyboot.Verdict.Of(u.task.Target.Path); (said == "") != (r.Outcome == task.Done) {
			t.Errorf("the word is %q, the report %+v", said, r)
		}
	})
}

// TestGuestKeepsItsDisk: what does not decide the bytes changes while a guest uses the disk: the administrator's proxy, how large
// disks are made, the claim's size. The worker continues where the one before stopped, and the disk stays as large as the guest
// knows it.
func TestGuestKeepsItsDisk(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*task.Task){
		"proxy":   func(k *task.Task) { k.Source.HTTP.NoProxy = "127.0.0.1,::1" },
		"smaller": func(k *task.Task) { k.Target.Size = 9 << 20 },
		"larger":  func(k *task.Task) { k.Target.Size = 20 << 20 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := disktest.Noise(8<<20, 11)
			s, url := newSlowly(t, image, 1<<20)
			u := use(t, url, func(k *task.Task) { k.Target.Size = 12 << 20 })
			want := append(bytes.Clone(image), make([]byte, 4<<20)...)
			c := u.dial()
			scribble(t, c, want, rand.New(rand.NewPCG(5, 6)), 40)
			u.cancel()
			if r := <-u.report; r.Reason != task.Interrupted {
				t.Fatalf("report %+v", r)
			}
			_ = c.Close()
			change(&u.task)
			s.rate.Store(1 << 40)
			u.run()
			if err := u.dial().Leave(); err != nil {
				t.Fatal(err)
			}
			if r := <-u.report; r.Outcome != task.Done {
				t.Fatalf("report %+v", r)
			}
			wantBytes(t, u.task.Target.Path, want)
		})
	}
}
