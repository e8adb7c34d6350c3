package decode

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-vm/berth/internal/task"
)

// sample is n bytes that compress somewhat: text-like, with holes.
func sample(n int) []byte {
	p := make([]byte, n)
	x := uint32(1)
	for i := range p {
		x = x*1664525 + 1013904223
		switch {
		case i/70000%3 == 2: // a hole
		case x>>28 < 6 && i > 100:
			p[i] = p[i-int(x>>20&63)-1]
		default:
			p[i] = "etaoin shrdlu0123456789\n\x00\x7fELF"[x>>24%28]
		}
	}
	return p
}

func gz(t testing.TB, p []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(p)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zst(t testing.TB, p []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return e.EncodeAll(p, nil)
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		head string
		want Kind
	}{
		{"", None}, {"\x1f", None}, {"\x1f\x8b", None}, {"\x1f\x8b\x08", Gzip}, {"\x1f\x8b\x07", None},
		{"\xfd7zXZ", None}, {"\xfd7zXZ\x00", Xz}, {"\x28\xb5\x2f\xfd", Zstd}, {"\x5e\x2a\x4d\x18", Zstd},
		{"QFI\xfb", None}, {"\x00\x00\x00\x00\x00\x00", None},
	} {
		if got := Detect([]byte(c.head)); got != c.want {
			t.Errorf("Detect(%q) = %q, want %q", c.head, got, c.want)
		}
	}
}

func TestReaderRoundTrips(t *testing.T) {
	want := sample(3*chunkSize + 12345)
	for kind, src := range map[Kind][]byte{None: want, Gzip: gz(t, want), Zstd: zst(t, want)} {
		t.Run("kind "+string(kind), func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"whole":  bytes.NewReader(src),
				"halves": iotest.HalfReader(bytes.NewReader(src)),
				"eager":  iotest.DataErrReader(bytes.NewReader(src)),
			} {
				d, err := NewReader(kind, r, Options{})
				if err != nil {
					t.Fatal(name, err)
				}
				got, err := io.ReadAll(d)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestLimit(t *testing.T) {
	p := sample(2*chunkSize + 1)
	for _, limit := range []int64{1, chunkSize, 2 * chunkSize} {
		d, err := NewReader(Gzip, bytes.NewReader(gz(t, p)), Options{Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, d)
		var te *task.Error
		if !errors.As(err, &te) || te.Reason != task.DoesNotFit || n > limit {
			t.Errorf("limit %d: %d bytes, %v", limit, n, err)
		}
	}
	d, err := NewReader(Gzip, bytes.NewReader(gz(t, p)), Options{Limit: int64(len(p))})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, d); err != nil || n != int64(len(p)) {
		t.Errorf("limit equal to the size: %d bytes, %v", n, err)
	}
}

func TestSourceErrorComesThrough(t *testing.T) {
	reset := errors.New("connection reset")
	for kind, src := range map[Kind][]byte{None: sample(1000), Gzip: gz(t, sample(100000)), Zstd: zst(t, sample(100000))} {
		for _, cut := range []int{0, 1, len(src) / 2, len(src) - 1} {
			r := io.MultiReader(bytes.NewReader(src[:cut]), iotest.ErrReader(reset))
			d, err := NewReader(kind, r, Options{})
			if err == nil {
				_, err = io.Copy(io.Discard, d)
			}
			if !errors.Is(err, reset) {
				t.Errorf("%s cut at %d: %v, want the source's error", kind, cut, err)
			}
		}
	}
}

func TestTruncatedIsBadImage(t *testing.T) {
	for kind, src := range map[Kind][]byte{Gzip: gz(t, sample(100000)), Zstd: zst(t, sample(100000))} {
		for _, cut := range []int{4, len(src) / 2, len(src) - 1} {
			d, err := NewReader(kind, bytes.NewReader(src[:cut]), Options{})
			if err == nil {
				_, err = io.Copy(io.Discard, d)
			}
			var te *task.Error
			if !errors.As(err, &te) || te.Reason != task.BadImage {
				t.Errorf("%s cut at %d of %d: %v, want BadImage", kind, cut, len(src), err)
			}
		}
	}
}

func TestPlainResumes(t *testing.T) {
	want := sample(3*chunkSize + 5)
	d, err := NewReader(None, bytes.NewReader(want), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Next(); err != nil {
		t.Fatal(err)
	}
	s := d.State()
	if s == nil || s.In != s.Out || s.Out > chunkSize {
		t.Fatalf("the state is %+v", s)
	}
	for _, out := range []int64{s.Out, 1000, 4096} {
		got, err := all(t, None, want[out:], Options{Resume: &State{In: out, Out: out}})
		if err != nil || !bytes.Equal(got, want[out:]) {
			t.Errorf("from %d: %d bytes, %v", out, len(got), err)
		}
	}
}
