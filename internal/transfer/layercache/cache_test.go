package layercache

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLeaves: what was used longest ago goes first, and of what was used together the uppermost.
func TestLeaves(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	all := []*kept{
		{chain: "new base", used: at.Add(time.Hour)}, {chain: "new top", used: at.Add(time.Hour), note: note{Depth: 1}},
		{chain: "old base", used: at}, {chain: "old top", used: at, note: note{Depth: 1}},
	}
	slices.SortFunc(all, leaves)
	var got []string
	for _, k := range all {
		got = append(got, k.chain)
	}
	if want := []string{"old top", "old base", "new top", "new base"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestBound: the cache stays below its bound, removes layers that are not open, and refuses those that do not fit.
func TestBound(t *testing.T) {
	c := newCache(t, t.TempDir(), 16<<20)
	one, two, three := packed(t, 1, map[string]int{"a": 4 << 20}), packed(t, 2, map[string]int{"a": 4 << 20}), packed(t, 3, map[string]int{"a": 4 << 20})
	chain := func(b *blob) string { return chainOf("", b.digest()) }
	_, held := take(t, c, one)
	_, files := take(t, c, two)
	_ = files[0].Close()
	// The third needs more than is left while it is sent and made: the second goes, although the first was used before it.
	_, third := take(t, c, three)
	if c.find(chain(one)) == nil || c.find(chain(two)) != nil || c.find(chain(three)) == nil {
		t.Error("what somebody has open was let go, or what nobody has open was not")
	}
	if c.taken > c.bound {
		t.Errorf("%d bytes are taken of %d", c.taken, c.bound)
	}
	conn, done := asker(t, c, quick)
	if _, _, err := Ask(t.Context(), conn, two.digest(), int64(len(two.data)), two); !errors.Is(err, ErrRefused) {
		t.Errorf("there is no room: %v", err)
	}
	<-done
	_, _ = held[0].Close(), third[0].Close()
	if l, _ := take(t, c, two); !l[0].Made {
		t.Error("there is room again")
	}
	if c.find(chain(one)) != nil {
		t.Error("the one that was used longest ago is still there")
	}
}

// TestSpare: a medium that others fill up counts as well.
func TestSpare(t *testing.T) {
	c := newCache(t, t.TempDir(), 1<<30)
	free := int64(64 << 20)
	c.Spare = func() int64 { return free }
	one, two := packed(t, 1, map[string]int{"a": 1 << 20}), packed(t, 2, map[string]int{"a": 1})
	_, files := take(t, c, one)
	_ = files[0].Close()
	free = 1 << 10
	conn, done := asker(t, c, quick)
	if _, _, err := Ask(t.Context(), conn, two.digest(), int64(len(two.data)), two); !errors.Is(err, ErrRefused) {
		t.Errorf("the medium is full: %v", err)
	}
	<-done
	left(t, c, 0) // it has let go what it could
	if spare, err := FreeAbove(t.TempDir(), 0); err != nil || spare() <= 0 {
		t.Errorf("the medium of the test has no room: %v", err)
	}
}

// TestHeld: the kernel knows who has a layer open.
func TestHeld(t *testing.T) {
	c := newCache(t, t.TempDir(), 1<<30)
	b := packed(t, 1, map[string]int{"a": 1})
	chain := chainOf("", b.digest())
	_, files := take(t, c, b)
	if !c.held(chain) {
		t.Error("a layer that is open is not held")
	}
	_ = files[0].Close()
	if c.held(chain) {
		t.Error("a layer that nobody has open is held")
	}
}

// TestBarred: a client that locks a layer for writing does not block others: the next gets another file.
func TestBarred(t *testing.T) {
	c := newCache(t, t.TempDir(), 1<<30)
	b := packed(t, 1, map[string]int{"a": 1})
	_, files := take(t, c, b)
	lock := func(at int64) {
		if err := unix.FcntlFlock(files[0].Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: at, Len: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []int64{100, 201, 203} { // as QEMU does who reads
		lock(at)
	}
	if l, _ := take(t, c, b); l[0].Made {
		t.Error("a layer that others read is made again")
	}
	for _, at := range []int64{101, 103, 200} {
		lock(at)
		var l []Layer
		if l, files = take(t, c, b); !l[0].Made {
			t.Errorf("a layer with a lock at %d is given to others", at)
		}
	}
	left(t, c, 3)
}

// TestAgain: a cache that is opened again has what was complete, and nothing of what was not.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	c := newCache(t, dir, 1<<30)
	image := []*blob{packed(t, 1, map[string]int{"a": 600 << 10}), packed(t, 2, map[string]int{"b": 600 << 10}), packed(t, 3, map[string]int{"link:a": 0})}
	_, before := take(t, c, image[:2]...)
	for _, name := range []string{"1234" + halfEnd, "beef" + diskEnd, "beef" + treeEnd, "dead" + noteEnd} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c = newCache(t, dir, 1<<30)
	left(t, c, 6)
	// The next layer is laid over a tree that the first cache wrote.
	got, files := take(t, c, image...)
	if got[0].Made || got[1].Made || !got[2].Made {
		t.Errorf("%+v", got)
	}
	// A lower bound removes the layers that no longer fit.
	for _, f := range slices.Concat(before, files) {
		_ = f.Close()
	}
	const lower = 3 << 19
	c = newCache(t, dir, lower)
	if c.taken > lower || c.find(chainOf("", image[0].digest())) == nil {
		t.Errorf("%d bytes are taken", c.taken)
	}
}
