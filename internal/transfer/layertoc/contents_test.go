package layertoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/testing/chunked"
)

const (
	size  = 1000
	layer = 900
)

func ask() *wanted { return &wanted{name: "/" + chunked.Name, size: size, layer: layer} }

func sum(c byte) string { return "sha256:" + strings.Repeat(string(c), 64) }

// good has three parts, the second of zeroes.
func good() []chunked.Entry {
	return []chunked.Entry{
		{Type: "dir", Name: "disk"},
		{Type: "reg", Name: "./" + chunked.Name, Size: size, Offset: 10, EndOffset: 700, ChunkSize: 400, Digest: sum('0'), ChunkDigest: sum('a')},
		{Type: "chunk", Name: chunked.Name, Offset: 300, ChunkOffset: 400, ChunkSize: 100, ChunkType: "zeros"},
		{Type: "chunk", Name: chunked.Name, Offset: 310, ChunkOffset: 500, ChunkSize: 500, ChunkDigest: sum('b')},
		{Type: "reg", Name: "etc/x", Size: 1, Offset: 700, Digest: sum('c')},
	}
}

func table(t testing.TB, entries []chunked.Entry) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"version": 1, "entries": entries})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestParse: the parts of the file, and nothing of others.
func TestParse(t *testing.T) {
	got, err := ask().parse(bytes.NewReader(table(t, good())))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for i, p := range got.Parts {
		text += fmt.Sprintf("%d+%d at %d-%d %x zero=%t; ", p.At, got.End(i)-p.At, p.From, p.To, p.Sum[:1], p.Zero)
	}
	if want := "0+400 at 10-300 aa zero=false; 400+100 at 300-310 00 zero=true; 500+500 at 310-700 bb zero=false; "; text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	one := good()[:2]
	one[1].ChunkSize, one[1].ChunkDigest, one[1].EndOffset = 0, "", 0
	if got, err := ask().parse(bytes.NewReader(table(t, one))); err != nil || len(got.Parts) != 1 || got.Parts[0].To != layer {
		t.Errorf("a file of one part: %+v, %v", got, err)
	}
}

// TestRefused: what cannot be a table of this file in this layer.
func TestRefused(t *testing.T) {
	for name, change := range map[string]func([]chunked.Entry) []chunked.Entry{
		"no file":           func(e []chunked.Entry) []chunked.Entry { return e[:1] },
		"the file twice":    func(e []chunked.Entry) []chunked.Entry { return append(e, e[1]) },
		"another size":      func(e []chunked.Entry) []chunked.Entry { e[1].Size--; return e },
		"a link":            func(e []chunked.Entry) []chunked.Entry { e[1].Type = "hardlink"; return e },
		"parts without it":  func(e []chunked.Entry) []chunked.Entry { return e[2:] },
		"no first part":     func(e []chunked.Entry) []chunked.Entry { e[1].ChunkOffset = 1; return e },
		"a part too few":    func(e []chunked.Entry) []chunked.Entry { return append(e[:2:2], e[3:]...) },
		"parts in disorder": func(e []chunked.Entry) []chunked.Entry { e[2], e[3] = e[3], e[2]; return e },
		"beyond the file":   func(e []chunked.Entry) []chunked.Entry { e[3].ChunkOffset = size; return e },
		"beyond the layer":  func(e []chunked.Entry) []chunked.Entry { e[3].Offset = layer; return e },
		"before the layer":  func(e []chunked.Entry) []chunked.Entry { e[1].Offset = -1; return e },
		"backwards":         func(e []chunked.Entry) []chunked.Entry { e[3].Offset = 299; return e },
		"no digest":         func(e []chunked.Entry) []chunked.Entry { e[3].ChunkDigest = ""; return e },
		"a digest of another": func(e []chunked.Entry) []chunked.Entry {
			e[3].ChunkDigest = "sha512:" + strings.Repeat("a", 128)
			return e
		},
		"a long digest": func(e []chunked.Entry) []chunked.Entry { e[3].ChunkDigest += "00"; return e },
	} {
		if got, err := ask().parse(bytes.NewReader(table(t, change(good())))); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, text := range []string{"", "{", "[]", `{"version":2,"entries":[]}`, `{"entries":{}}`, `{"entries":[1]}`} {
		if got, err := ask().parse(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
	large := &wanted{name: "/" + chunked.Name, size: MaxPart + 1, layer: 1 << 30}
	one := []chunked.Entry{{Type: "reg", Name: chunked.Name, Size: MaxPart + 1, Offset: 1, Digest: sum('a')}}
	if got, err := large.parse(bytes.NewReader(table(t, one))); err == nil {
		t.Errorf("a large part: %+v", got)
	}
}

// FuzzParse reads tables of anything: there is an error, or parts that lie in the layer, have the whole file and are not too large.
func FuzzParse(f *testing.F) {
	f.Add(table(f, good()), int64(size), int64(layer))
	f.Add(table(f, good()[:2]), int64(400), int64(layer))
	f.Add([]byte(`{"version":1,"x":{"y":[1]},"entries":[{"type":"reg","name":"/disk/disk.img","size":9223372036854775807,"offset":9223372036854775807}]}`), int64(1<<62), int64(1<<62))
	f.Fuzz(func(t *testing.T, text []byte, size, layer int64) {
		if size <= 0 || layer <= 0 || size > 1<<60 || layer > 1<<60 {
			return
		}
		w := &wanted{name: "/" + chunked.Name, size: size, layer: layer}
		got, err := w.parse(bytes.NewReader(text))
		if err != nil {
			return
		}
		at := int64(0)
		for i, p := range got.Parts {
			if p.At != at || got.End(i) <= at || p.From < 0 || p.To > layer || p.From > p.To || !p.Zero && (p.From == p.To || got.End(i)-at > MaxPart) {
				t.Fatalf("part %d is %+v", i, p)
			}
			at = got.End(i)
		}
		if at != size {
			t.Fatalf("the parts have %d bytes of %d", at, size)
		}
	})
}
