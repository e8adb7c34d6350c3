package peerproto

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// disk is data, zeroes and noise in runs that do not end on page boundaries.
func disk(n int) []byte {
	p := make([]byte, n)
	rng := rand.New(rand.NewPCG(1, 2))
	for at := 0; at < n; {
		run := min(rng.IntN(300_000)+1, n-at)
		switch rng.IntN(3) {
		case 0:
			for i := range run {
				p[at+i] = byte(rng.Uint32())
			}
		case 1:
			for i := range run {
				p[at+i] = "text that compresses well "[i%26]
			}
		}
		at += run
	}
	return p
}

func frames(t testing.TB, p []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for len(p) > 0 {
		n := min(len(p), 700_001)
		if _, err := w.Write(p[:n]); err != nil {
			t.Fatal(err)
		}
		p = p[n:]
	}
	return b.Bytes()
}

func TestFramesRoundTrip(t *testing.T) {
	want := disk(5_000_003)
	wire := frames(t, want)
	if len(wire) > len(want)*2/3 {
		t.Errorf("%d bytes on the wire for %d: zeroes or text were not made smaller", len(wire), len(want))
	}
	for name, src := range map[string]io.Reader{
		"whole": bytes.NewReader(wire), "halves": iotest.HalfReader(bytes.NewReader(wire)),
	} {
		r, err := NewReader(src, int64(len(want)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: read %d bytes, err %v; want the %d written", name, len(got), err, len(want))
		}
		r.Close()
	}
}

func TestFramesCutOff(t *testing.T) {
	want := disk(700_000)
	wire := frames(t, want)
	for cut := 0; cut < len(wire); cut += 1 + len(wire)/211 {
		r, err := NewReader(bytes.NewReader(wire[:cut]), int64(len(want)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d of %d: err %v, want unexpected EOF", cut, len(wire), err)
		}
		r.Close()
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(frames(f, disk(100_000)), int64(100_000))
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 3, 1, 2, 3}, int64(9))
	f.Fuzz(func(t *testing.T, p []byte, n int64) {
		r, err := NewReader(bytes.NewReader(p), n)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, err := io.Copy(io.Discard, io.LimitReader(r, 1<<24))
		if err == nil && n >= 0 && n < 1<<24 && got != n {
			t.Fatalf("%d bytes without an error, want %d", got, n)
		}
	})
}

func TestExtentsCheck(t *testing.T) {
	for name, c := range map[string]struct {
		e  Extents
		ok bool
	}{
		"empty":    {Extents{}, true},
		"in order": {Extents{{10, 5}, {15, 5}}, true},
		"overlap":  {Extents{{10, 6}, {15, 5}}, false},
		"outside":  {Extents{{95, 6}}, false},
		"before":   {Extents{{9, 1}}, false},
		"overflow": {Extents{{10, 1<<63 - 1}}, false},
		"negative": {Extents{{10, -1}}, false},
	} {
		if err := c.e.Check(10, 100); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNext: zeroes are counted instead of copied, and the other bytes are those that were framed.
func TestNext(t *testing.T) {
	disk := make([]byte, 5<<20)
	for _, at := range []int{0, 1<<20 + 4096, 5<<20 - 1} {
		disk[at] = 1
	}
	var framed bytes.Buffer
	w := NewPlainWriter(&framed)
	if _, err := w.Write(disk); err != nil {
		t.Fatal(err)
	}
	if framed.Len() > 32<<10 {
		t.Errorf("%d bytes of frames for three pages", framed.Len())
	}
	r, err := NewReader(&framed, int64(len(disk)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []byte
	buf := make([]byte, 1000)
	for {
		n, zeroes, err := r.Next(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || n > 0 && zeroes > 0 || n == 0 && zeroes == 0 {
			t.Fatalf("%d bytes, %d zeroes, %v", n, zeroes, err)
		}
		got = append(append(got, buf[:n]...), make([]byte, zeroes)...)
	}
	if !bytes.Equal(got, disk) {
		t.Error("another disk came out")
	}
}
