package lazylayer

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/berth-vm/berth/internal/testing/chunked"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// tableLayer is a layer with a table of contents.
type tableLayer struct {
	*layer
	of chunked.Layer
	n  int
}

func (l *tableLayer) Info() source.Info {
	i := l.layer.Info()
	i.Member.Name, i.Member.Offset, i.Member.Size, i.Member.Annotations = "/"+chunked.Name, l.of.Offset, int64(l.n), l.of.Annotations
	return i
}

func withTable(t *testing.T, kind decode.Kind, content []byte, part int, lies chunked.Lies) *tableLayer {
	t.Helper()
	of := chunked.New(t, kind, content, part, lies)
	return &tableLayer{&layer{data: of.Data}, of, len(content)}
}

// holed has parts of zeroes.
func holed(n int) []byte {
	b := words(n)
	clear(b[n/3 : n/2])
	return b
}

// TestTable: what a table names is read before any pass, and costs what is read; the pass then says that all of it was right.
func TestTable(t *testing.T) {
	t.Parallel()
	content := holed(3<<20 + 12345)
	for name, c := range map[string]struct {
		kind decode.Kind
		part int
	}{"zstd:chunked": {decode.Zstd, 70_000}, "eStargz": {decode.Gzip, 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := withTable(t, c.kind, content, c.part, chunked.Lies{})
			cache, l := opened(t, t.TempDir(), b)
			defer cache.Close()
			if s := l.State(); !s.Table || s.NoTable != nil {
				t.Fatalf("the table is not used: %+v", s)
			}
			at, end := int(b.of.Offset), int(b.of.Offset)+len(content)
			before := b.taken()
			same(t, l, b.of.Plain, end-100, 100) // nobody has begun a pass
			if took := b.taken() - before; took > int64(c.part)+pieceSize {
				t.Errorf("100 bytes cost %d", took)
			}
			same(t, l, b.of.Plain, at, 100)
			r := rand.New(rand.NewPCG(5, 6))
			for range 15 {
				from := at + r.IntN(len(content))
				same(t, l, b.of.Plain, from, min(1+r.IntN(700_000), end-from))
			}
			if s := l.State(); !s.Table || s.Proven || s.Reached != 0 {
				t.Fatalf("it was not read by the table: %+v", s)
			}
			l.Begin(nil)
			same(t, l, b.of.Plain, 0, 10) // the archive's own bytes are not in the table
			l.Settled()
			if s := l.State(); !s.Proven {
				t.Fatalf("%+v", s)
			}
			same(t, l, b.of.Plain, 0, len(b.of.Plain))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestTableIsNotUsed: a table that cannot be right is left alone, and so is one that turns out wrong; the pass is waited for instead, and the
// bytes are the layer's.
func TestTableIsNotUsed(t *testing.T) {
	t.Parallel()
	content := holed(2 << 20)
	wrong := func(e []chunked.Entry) []chunked.Entry {
		e[2].ChunkDigest = e[3].ChunkDigest
		return e
	}
	for name, c := range map[string]struct {
		lies chunked.Lies
		late bool // that is found out when it is read
	}{
		"another table than the manifest names": {lies: chunked.Lies{Text: func(b []byte) []byte { b[len(b)/2] ^= 1; return b }}},
		"a file of another size":                {lies: chunked.Lies{Entries: func(e []chunked.Entry) []chunked.Entry { e[1].Size++; return e }}},
		"a gap":                                 {lies: chunked.Lies{Entries: func(e []chunked.Entry) []chunked.Entry { return append(e[:2:2], e[3:]...) }}},
		"a wrong digest":                        {lies: chunked.Lies{Entries: wrong}, late: true},
	} {
		for _, kind := range []decode.Kind{decode.Zstd, decode.Gzip} {
			t.Run(name+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				b := withTable(t, kind, content, 300_000, c.lies)
				cache, l := opened(t, t.TempDir(), b)
				defer cache.Close()
				if s := l.State(); s.Table != c.late || (s.NoTable == nil) != c.late {
					t.Fatalf("%+v", s)
				}
				l.Begin(nil)
				same(t, l, b.of.Plain, 0, len(b.of.Plain))
				l.Settled()
				if s := l.State(); !s.Proven {
					t.Fatalf("%+v", s)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	// It is found out at the latest when the part is read, pass or no pass.
	b := withTable(t, decode.Zstd, content, 300_000, chunked.Lies{Entries: wrong})
	_, l := opened(t, t.TempDir(), b)
	got := make(chan error, 1)
	go func() {
		p := make([]byte, 1000)
		_, err := l.ReadAt(p, b.of.Offset+350_000)
		if err == nil && !bytes.Equal(p, content[350_000:351_000]) {
			err = errors.New("other bytes")
		}
		got <- err
	}()
	l.Begin(nil)
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTableThatLies: the image's author may describe another disk than the layer has. It is read until the pass comes by, which
// condemns the layer: in whole pieces, and in the one that the file ends in.
func TestTableThatLies(t *testing.T) {
	t.Parallel()
	content := words(3 << 20)
	for name, c := range map[string]struct{ from, at int }{"a piece": {5, 1_700_000}, "the last piece": {10, 3<<20 - 1000}, "behind a gap": {5, 1_499_500}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := withTable(t, decode.Zstd, content, 300_000, chunked.Lies{From: c.from})
			cache, l := opened(t, t.TempDir(), b)
			defer cache.Close()
			if s := l.State(); !s.Table {
				t.Fatalf("%+v", s)
			}
			if _, err := l.ReadAt(make([]byte, 1000), b.of.Offset+int64(c.at)); err != nil {
				t.Fatal(err)
			}
			l.Begin(nil)
			l.Settled()
			if s := l.State(); s.Condemned == nil || s.Proven {
				t.Fatalf("%+v", s)
			}
			if _, err := l.ReadAt(make([]byte, 1), b.of.Offset); !errors.Is(err, ErrCondemned) {
				t.Errorf("%v", err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
