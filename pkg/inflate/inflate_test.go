package inflate

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"errors"
	"io"
	"testing"
)

// text is n bytes with matches of every kind: near, far, long, overlapping.
func text(n int) []byte {
	p := make([]byte, 0, n+300)
	x := uint32(7)
	for len(p) < n {
		x = x*1664525 + 1013904223
		switch back := 1 + int(x>>8&0x7fff)>>(x>>4&15); {
		case x>>30 == 0 && back <= len(p):
			for range 3 + x>>24&0xff {
				p = append(p, p[len(p)-back])
			}
		case x>>26 == 20:
			p = append(p, make([]byte, 700)...)
		default:
			p = append(p, byte(x>>24&0x3f)+byte(x>>23&1)*64)
		}
	}
	return p[:n]
}

func deflated(t testing.TB, p []byte, level int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(p)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestInflate(t *testing.T) {
	var d Decoder
	for _, n := range []int{0, 1, 2, 10, 257, 258, 300, 1000, 65536, 1 << 20} {
		for level := flate.HuffmanOnly; level <= 9; level++ {
			want := text(n)
			src := deflated(t, want, level)
			dst := make([]byte, n)
			for _, tail := range []string{"", "x", "what follows is none of our business"} {
				m, used, err := d.Inflate(dst, append(src[:len(src):len(src)], tail...))
				if err != nil || m != n || used != len(src) || !bytes.Equal(dst, want) {
					t.Fatalf("%d bytes at level %d: %d of %d, %v, same %v", n, level, m, used, err, bytes.Equal(dst, want))
				}
			}
		}
	}
}

// Where runs are rare their codes are long and lie in second tables, where they are common they come by the thousand.
func TestInflateRuns(t *testing.T) {
	var d Decoder
	for _, every := range []int{100, 20000} {
		for _, v := range []byte{0, 'x'} {
			var want []byte
			for x := uint32(1); len(want) < 1<<20; {
				for range every {
					x = x*1664525 + 1013904223
					want = append(want, byte(x>>24)%200)
				}
				want = append(want, bytes.Repeat([]byte{v}, 1+int(x>>20))...)
			}
			for _, level := range []int{1, 6, 9} {
				src := deflated(t, want, level)
				dst := make([]byte, len(want))
				if n, _, err := d.Inflate(dst, src); err != nil || !bytes.Equal(dst[:n], want) {
					t.Errorf("runs of %d every %d at level %d: %d of %d bytes, %v", v, every, level, n, len(want), err)
				}
				if got, _, err := streamed(&d, src, 1000, 2000); err != nil || !bytes.Equal(got, want) {
					t.Errorf("runs of %d every %d at level %d, in pieces: %d of %d bytes, %v", v, every, level, len(got), len(want), err)
				}
			}
		}
	}
}

func TestInflateFull(t *testing.T) {
	var d Decoder
	want := text(5000)
	for level := 0; level <= 9; level++ {
		src := deflated(t, want, level)
		for n := range len(want) {
			dst := make([]byte, n)
			if m, _, err := d.Inflate(dst, src); !errors.Is(err, Full) || m != n || !bytes.Equal(dst, want[:n]) {
				t.Fatalf("level %d with room for %d: %d, %v", level, n, m, err)
			}
		}
	}
}

func TestInflateTruncated(t *testing.T) {
	var d Decoder
	want := text(5000)
	dst := make([]byte, len(want))
	for level := 0; level <= 9; level++ {
		src := deflated(t, want, level)
		for n := range len(src) {
			if m, used, err := d.Inflate(dst, src[:n]); !errors.Is(err, Truncated) || used > n || !bytes.Equal(dst[:m], want[:m]) {
				t.Fatalf("level %d cut at %d of %d: %d, %v", level, n, len(src), m, err)
			}
		}
	}
}

func TestZlib(t *testing.T) {
	var d Decoder
	want := text(70000)
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	w.Write(want)
	w.Close()
	src := append(b.Bytes(), "tail"...)
	dst := make([]byte, len(want))
	n, used, err := d.Zlib(dst, src)
	if err != nil || used != len(src)-4 || !bytes.Equal(dst[:n], want) {
		t.Fatalf("%d, %d of %d, %v", n, used, len(src), err)
	}
	for at, want := range map[int]Error{0: BadHeader, 1: BadHeader, len(src) - 5: BadSum} {
		broken := bytes.Clone(src)
		broken[at] ^= 0x20
		if _, _, err := d.Zlib(dst, broken); !errors.Is(err, want) {
			t.Errorf("byte %d changed: %v, want %v", at, err, want)
		}
	}
	for cut := range len(src) - 4 {
		if _, _, err := d.Zlib(dst, src[:cut]); !errors.Is(err, Truncated) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

// streamed decodes src with Decode, given in pieces of in bytes and taken in buffers of out bytes.
func streamed(d *Decoder, src []byte, in, out int) ([]byte, int, error) {
	d.Reset()
	const history = 1 << 15
	var got []byte
	buf := make([]byte, 0, history+out+300)
	begin, end := 0, min(in, len(src))
	for {
		start := len(buf)
		op, used, status, err := d.Decode(buf[:cap(buf)], start, src[begin:end], end == len(src))
		got = append(got, buf[start:op]...)
		buf, begin = buf[:op], begin+used
		switch status {
		case Failed:
			return got, begin, err
		case Done:
			return got, begin, nil
		case NeedInput:
			if end == len(src) {
				return got, begin, Truncated
			}
			end = min(len(src), end+in)
		case NeedOutput:
			n := copy(buf[:history], buf[max(0, op-history):op])
			buf = buf[:n]
		case Block, goOn:
		}
	}
}

func TestDecodeInPieces(t *testing.T) {
	var d Decoder
	want := text(200000)
	for level := -2; level <= 9; level++ {
		src := deflated(t, want, level)
		for _, in := range []int{1, 7, 100, 4096, len(src)} {
			for _, out := range []int{300, 5000, 1 << 18} {
				got, used, err := streamed(&d, src, in, out)
				if err != nil || used != len(src) || !bytes.Equal(got, want) {
					t.Fatalf("level %d in %d out %d: %d bytes, %d of %d, %v", level, in, out, len(got), used, len(src), err)
				}
			}
		}
	}
}

func TestSkipEntersAtEveryBlock(t *testing.T) {
	want := text(400000)
	for _, level := range []int{-2, 0, 1, 6, 9} {
		src := deflated(t, want, level)
		var d Decoder
		dst := make([]byte, len(want)+300)
		op, ip, blocks := 0, 0, 0
		for {
			n, used, status, err := d.Decode(dst, op, src[ip:], true)
			op, ip = n, ip+used
			if err != nil {
				t.Fatal(err)
			}
			if status == Done {
				break
			}
			blocks++
			var e Decoder
			rest := ip
			if p := d.Pending(); p > 0 {
				e.Skip(8-p, src[ip-1])
			}
			other := append(bytes.Clone(dst[max(0, op-1<<15):op]), make([]byte, len(want)-op+300)...)
			from := min(op, 1<<15)
			at := from
			for {
				n, used, status, err := e.Decode(other, at, src[rest:], true)
				at, rest = n, rest+used
				if err != nil {
					t.Fatal(err)
				}
				if status == Done {
					break
				}
			}
			if !bytes.Equal(other[from:at], want[op:]) {
				t.Fatalf("level %d entered at byte %d: different", level, ip)
			}
		}
		if blocks < 2 {
			t.Fatalf("level %d: %d blocks", level, blocks)
		}
	}
}

func FuzzInflate(f *testing.F) {
	for level := -2; level <= 9; level++ {
		f.Add(deflated(f, text(3000), level), uint16(100))
	}
	f.Add([]byte{5, 0xc0, 0x81, 8, 0, 0, 0, 0, 0x20, 0x7f, 0xeb, 0xb, 0, 0}, uint16(1)) // a distance code of one symbol
	f.Fuzz(func(t *testing.T, src []byte, in uint16) {
		const most = 1 << 20
		want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(src)), most))
		if len(want) == most {
			return
		}
		var d Decoder
		dst := make([]byte, len(want)+int(in)%600)
		n, _, err := d.Inflate(dst, src)
		if (err == nil) != (wantErr == nil) || wantErr == nil && !bytes.Equal(dst[:n], want) {
			t.Fatalf("%d bytes, %v; compress/flate has %d bytes, %v", n, err, len(want), wantErr)
		}
		got, _, err := streamed(&d, src, int(in)+1, 300+int(in))
		if (err == nil) != (wantErr == nil) || wantErr == nil && !bytes.Equal(got, want) {
			t.Fatalf("streamed: %d bytes, %v; compress/flate has %d bytes, %v", len(got), err, len(want), wantErr)
		}
	})
}

func BenchmarkInflate(b *testing.B) {
	want := text(65536)
	src := deflated(b, want, 6)
	dst := make([]byte, len(want))
	var d Decoder
	b.SetBytes(int64(len(want)))
	for b.Loop() {
		if _, _, err := d.Inflate(dst, src); err != nil {
			b.Fatal(err)
		}
	}
}
