package layercache

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCounts: what the cache did is counted, and the caller beside it is told.
func TestCounts(t *testing.T) {
	c := newCache(t, t.TempDir(), 16<<20)
	one, two, three := packed(t, 1, map[string]int{"a": 4 << 20}), packed(t, 2, map[string]int{"a": 4 << 20}), packed(t, 3, map[string]int{"a": 4 << 20})
	_, held := take(t, c, one)
	_, _ = take(t, c, one) // shared
	_, files := take(t, c, two)
	_ = files[0].Close()
	_, _ = take(t, c, three) // the second is let go
	conn, done := asker(t, c, quick)
	if _, _, err := Ask(t.Context(), conn, two.digest(), int64(len(two.data)), two); err == nil {
		t.Error("there is room")
	}
	<-done
	c.TurnAway()
	_ = held
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "counts"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go c.TellCounts(l)
	for range 2 {
		asks, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadCounts(asks)
		if err != nil {
			t.Fatal(err)
		}
		if got.Bytes < 8<<20 || got.Bytes > 16<<20 {
			t.Errorf("%d bytes are there", got.Bytes)
		}
		got.Bytes = 0
		if diff := cmp.Diff(Counts{Layers: 2, Bound: 16 << 20, Made: 3, Shared: 1, LetGo: 1, Refused: 2}, got); diff != "" {
			t.Errorf("the counts (-want +got):\n%s", diff)
		}
	}
}

// TestLyingCounts: reading the counts of a compromised cache ends, soon, whatever it answers, and repeats no text of it.
func TestLyingCounts(t *testing.T) {
	for name, said := range map[string]string{
		"nothing": "", "words": "berth_layers_up 1\nsecret{a=\"hush\"} 1\n", "below zero": `{"bytes": -1}`, "a text": `{"made": "hush"}`, "too much": `{"layers": 1e400}`,
		"too long": `{"layers": 1` + strings.Repeat(" ", countsLongest) + "}", "two": `{"layers": 1}{"layers": 2}`,
	} {
		mine, its := net.Pipe()
		go func() {
			_, _ = io.WriteString(its, said)
			_ = its.Close()
		}()
		if got, err := ReadCounts(mine); err == nil || got != (Counts{}) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	mine, its := net.Pipe() // it says nothing, and does not end
	defer its.Close()
	if _, err := ReadCounts(mine); err == nil {
		t.Error("a silent cache has counts")
	}
}
