package watch

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/early"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
)

// stalled is a guest whose disk fails until it is mended, on a clock of the test's.
type stalled struct {
	*Stalls
	now     time.Time
	broken  bool
	resumes int
	fails   bool // the guest has tried again, and libvirt will report the result
	text    string
}

func newStalled() *stalled {
	s := &stalled{now: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)}
	s.Stalls = &Stalls{away: make(chan map[string]string, 1), waiting: map[string]waits{},
		ask: func() map[string]string { return nil }, Say: func(text string, _ launcherapi.Fault) { s.text = text }}
	s.resume = func() error {
		s.resumes++
		if s.resumes == 1 {
			return errors.New("libvirt is busy")
		}
		s.fails = s.broken
		return nil
	}
	return s
}

func (s *stalled) pass(seconds int) {
	for range seconds {
		s.now = s.now.Add(time.Second)
		s.Look(s.now)
		if s.fails {
			s.fails = false
			s.failed(s.now)
		}
	}
}

// TestPausedGuestGoesOn: a guest whose disk failed is tried again until the disk is back, and says so all the while.
func TestPausedGuestGoesOn(t *testing.T) {
	s := newStalled()
	s.broken = true
	s.failed(s.now)
	if !strings.Contains(s.text, "paused since 12:00:00") {
		t.Fatalf("nothing is said: %q", s.text)
	}
	s.pass(60)
	if s.resumes < 8 || s.resumes > 13 || !strings.Contains(s.text, "paused since 12:00:00") {
		t.Errorf("after a minute: %d tries, %q", s.resumes, s.text)
	}
	s.broken = false
	s.pass(10)
	if s.text != "" {
		t.Errorf("the disk is back: %q", s.text)
	}
	tries := s.resumes
	s.pass(60)
	if s.resumes != tries {
		t.Error("a guest that runs was let go on")
	}
}

// TestSilentServer: a server that is silent for long is named, one that restarts is not.
func TestSilentServer(t *testing.T) {
	s := newStalled()
	s.busy, s.asked = true, s.now.Add(time.Second) // as if it had just been asked: the test answers itself
	s.away <- map[string]string{"root": "connect to iscsi server a:1: refused"}
	s.pass(1)
	s.busy, s.asked = true, s.now.Add(4*time.Second)
	s.pass(4)
	if s.text != "" {
		t.Errorf("after five seconds: %q", s.text)
	}
	s.busy, s.asked = true, s.now.Add(10*time.Second)
	s.pass(10)
	if !strings.Contains(s.text, "volume root: connect to iscsi server a:1: refused, since 12:00:01") {
		t.Errorf("after fifteen seconds: %q", s.text)
	}
	s.away <- map[string]string{}
	s.pass(1)
	if s.text != "" {
		t.Errorf("it is back: %q", s.text)
	}
}

// TestFullCopyIsSaid: a guest that is paused for want of room says which disk has none, until it continues.
func TestFullCopyIsSaid(t *testing.T) {
	s := newStalled()
	s.broken = true
	s.Why = func() []string {
		return []string{fullText("root", backing.Disk{Copied: true, Limit: 70}), fullText("data", backing.Disk{Copied: true}), fullText("plain", backing.Disk{})}
	}
	s.failed(s.now)
	s.pass(30)
	for _, want := range []string{"the copy of volume root is full: it may take 70 bytes", "the copy of volume data is full: its medium has no room", "volume plain is full", "paused since"} {
		if !strings.Contains(s.text, want) {
			t.Errorf("it does not say %q: %s", want, s.text)
		}
	}
	s.broken = false
	s.pass(10)
	if s.text != "" {
		t.Errorf("it goes on and says %q", s.text)
	}
}

// TestSourceAwayIsSaid: a guest that is paused because the source of a disk does not answer says so, until it continues. A word of
// a source that no guest waits for is not told, and want of room goes first.
func TestSourceAwayIsSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := earlyboot.Away.Leave(path, "since 12:00:00 UTC: refused"); err != nil {
		t.Fatal(err)
	}
	s := newStalled()
	var cause launcherapi.Fault
	s.Say = func(text string, c launcherapi.Fault) { s.text, cause = text, c }
	one, other := net.Pipe()
	t.Cleanup(func() { _ = errors.Join(one.Close(), other.Close()) })
	s.Cut = func() []string {
		return early.WithoutSource(map[string]backing.Disk{"root": {Path: path, Early: one}, "data": {Path: path}})
	}
	s.pass(1)
	if s.text != "" {
		t.Errorf("a guest that runs says %q", s.text)
	}
	s.broken = true
	s.failed(s.now)
	s.pass(30)
	const want = "the source of volume root does not answer since 12:00:00 UTC: refused"
	if cause != launcherapi.DiskSourceAway || !strings.Contains(s.text, "paused since 12:00:01") || strings.Count(s.text, "does not answer") != 1 || !strings.Contains(s.text, want) {
		t.Errorf("it says %q, %s", s.text, cause)
	}
	s.Why = func() []string { return []string{fullText("plain", backing.Disk{})} }
	s.pass(30)
	if cause != launcherapi.DiskFull || !strings.Contains(s.text, want) {
		t.Errorf("a disk is full too: %q, %s", s.text, cause)
	}
	// Reads of the source fail long after the guest was resumed: that counts as one pause, not many.
	s.Why, s.full, s.broken = nil, nil, false
	s.pass(20)
	s.failed(s.now)
	s.pass(20)
	if cause != launcherapi.DiskSourceAway || !strings.Contains(s.text, "paused since 12:00:01") {
		t.Errorf("the source is away for longer: %q, %s", s.text, cause)
	}
	if err := earlyboot.Away.TakeBack(path); err != nil {
		t.Fatal(err)
	}
	s.pass(10)
	if s.text != "" || cause != "" {
		t.Errorf("it goes on and says %q, %s", s.text, cause)
	}
}

// TestWithoutRoom reads what QEMU 7.2 says of its drives.
func TestWithoutRoom(t *testing.T) {
	const answer = `[{"io-status": "ok", "device": "", "qdev": "/machine/peripheral/ua-data/virtio-backend"},
		{"io-status": "nospace", "device": "", "qdev": "/machine/peripheral/ua-root/virtio-backend"},
		{"io-status": "nospace", "device": "", "qdev": "ua-image"}, {"io-status": "failed", "qdev": "ua-other"}, {"device": "x"}]`
	if got := withoutRoom([]byte(answer)); !slices.Equal(got, []string{"image", "root"}) {
		t.Errorf("without room: %v", got)
	}
}
