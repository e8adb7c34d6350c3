package decode

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"io"
	"testing"
	"unsafe"

	"github.com/berth-vm/berth/internal/task"
)

// all reads a whole stream by Next and checks what Next promises.
func all(t testing.TB, kind Kind, src []byte, o Options) ([]byte, error) {
	t.Helper()
	d, err := NewReader(kind, bytes.NewReader(src), o)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var got []byte
	for {
		p, err := d.Next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		at := len(got)
		if o.Resume != nil {
			at += int(o.Resume.Out)
		}
		if at%4096 != 0 && kind != Xz && len(got) > 0 {
			t.Fatalf("a chunk at %d", at)
		}
		if int(uintptr(unsafe.Pointer(&p[0])))%4096 != at%4096 {
			t.Fatalf("the chunk at %d lies at %p", at, p)
		}
		got = append(got, p...)
	}
}

func TestGzipMembersAndPadding(t *testing.T) {
	a, b := sample(chunkSize+77), sample(3000)
	var withHeader bytes.Buffer
	w := stdgzip.NewWriter(&withHeader)
	w.Name, w.Comment, w.Extra = "disk.img", "made by hand", make([]byte, 5000)
	w.Write(b)
	w.Close()
	src := bytes.Join([][]byte{gz(t, a), gz(t, nil), withHeader.Bytes(), gz(t, b), make([]byte, 100000)}, nil)
	want := bytes.Join([][]byte{a, b, b}, nil)
	if got, err := all(t, Gzip, src, Options{}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
	}
	if _, err := all(t, Gzip, append(src, "garbage behind"...), Options{}); !isBad(err) {
		t.Errorf("garbage at the end: %v", err)
	}
}

func isBad(err error) bool {
	var te *task.Error
	return errors.As(err, &te) && te.Reason == task.BadImage
}

// A distance must not reach into the member before, even though its bytes are still there.
func TestGzipMembersAreApart(t *testing.T) {
	p := sample(50000)
	second := gz(t, p)
	// A fixed block: the literal "a", then a match of length 3 at distance 5.
	second = append(second[:10:10], 0x4b, 0x04, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	if _, err := all(t, Gzip, append(gz(t, p), second...), Options{}); !isBad(err) {
		t.Errorf("%v, want BadImage", err)
	}
}

func TestGzipSums(t *testing.T) {
	src := gz(t, sample(10000))
	for _, at := range []int{len(src) - 8, len(src) - 1, len(src) / 2} {
		broken := bytes.Clone(src)
		broken[at] ^= 1
		if _, err := all(t, Gzip, broken, Options{}); !isBad(err) {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
}

func TestGzipTruncatedAnywhere(t *testing.T) {
	src := append(gz(t, sample(600)), gz(t, sample(600))...)
	whole := len(src) / 2
	for n := range src {
		if _, err := all(t, Gzip, src[:n], Options{}); n != whole && !isBad(err) {
			t.Fatalf("cut at %d of %d: %v", n, len(src), err)
		}
	}
}

// Every block boundary of several members is a place to resume at.
func TestGzipResumesAtEveryBlock(t *testing.T) {
	want := bytes.Join([][]byte{sample(2*chunkSize + 999), sample(400000), sample(100)}, nil)
	src := bytes.Join([][]byte{gz(t, want[:2*chunkSize+999]), gz(t, want[2*chunkSize+999:])}, nil)
	states := gzipStates(t, src)
	if len(states) < 20 {
		t.Fatalf("only %d states", len(states))
	}
	for _, s := range states {
		got, err := all(t, Gzip, src[s.In:], Options{Resume: s})
		if err != nil || !bytes.Equal(got, want[s.Out:]) {
			t.Fatalf("from byte %d, decoded %d: %d bytes, %v; want %d", s.In, s.Out, len(got), err, int64(len(want))-s.Out)
		}
	}
}

// gzipStates drives the decoder manually to see the state at each block, of which readers are only shown some.
func gzipStates(t *testing.T, src []byte) (states []*State) {
	t.Helper()
	g := &gunzip{every: 1, free: make(chan []byte, 1), in: newInput(bytes.NewReader(src), Options{})}
	defer g.close()
	for {
		g.free <- nil
		g.advance()
		for g.op < history+chunkSize {
			var err error
			switch g.stage {
			case atMember:
				err = g.header()
			case atEntry, inBody:
				err = g.body()
			case atTrailer:
				err = g.trailer()
			}
			if errors.Is(err, io.EOF) {
				return states
			}
			if err != nil {
				t.Fatal(err)
			}
			if g.state != nil {
				states, g.state = append(states, g.state), nil
			}
		}
		g.digest()
		g.out += chunkSize
	}
}

// What a reader says of its state is never ahead of what it returned, and a resume from it gives the rest.
func TestGzipStateFollowsTheReader(t *testing.T) {
	want := sample(9*chunkSize + 5)
	src := gz(t, want)
	d, err := NewReader(Gzip, bytes.NewReader(src), Options{Every: chunkSize / 2})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for n := int64(0); ; {
		p, err := d.Next()
		if err != nil {
			break
		}
		n += int64(len(p))
		s := d.State()
		if s == nil {
			continue
		}
		seen++
		if s.Out > n || s.Out < n-2*chunkSize {
			t.Fatalf("after %d bytes the state is at %d", n, s.Out)
		}
		got, err := all(t, Gzip, src[s.In:], Options{Resume: s})
		if err != nil || !bytes.Equal(got, want[s.Out:]) {
			t.Fatalf("from %d: %d bytes, %v", s.Out, len(got), err)
		}
	}
	if seen < 8 {
		t.Errorf("only %d states", seen)
	}
}

func TestGzipRefusesAForeignState(t *testing.T) {
	for _, s := range []State{
		{Kind: Xz}, {Kind: Gzip}, {Kind: Gzip, Data: make([]byte, 10)},
		{Kind: Gzip, Data: append([]byte{1, 8}, make([]byte, 8)...)},
		{Kind: Gzip, Data: append([]byte{1, 0}, make([]byte, 9+history)...)},
	} {
		if _, err := NewReader(Gzip, bytes.NewReader(nil), Options{Resume: &s}); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
}

func FuzzGzip(f *testing.F) {
	f.Add(gz(f, sample(3000)))
	f.Add(append(gz(f, sample(300)), gz(f, nil)...))
	f.Add(append(gz(f, sample(300)), 0, 0, 0))
	f.Fuzz(func(t *testing.T, src []byte) {
		const most = 4 << 20
		var want []byte
		z, wantErr := stdgzip.NewReader(bytes.NewReader(src))
		if wantErr == nil {
			want, wantErr = io.ReadAll(io.LimitReader(z, most))
		}
		got, err := all(t, Gzip, src, Options{Limit: most})
		if len(want) == most {
			return
		}
		if errors.Is(err, errFlags) { // the RFC wants them refused; compress/gzip lets them pass
			return
		}
		if wantErr == nil && err != nil || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, %v; compress/gzip has %d, %v", len(got), err, len(want), wantErr)
		}
		// Zeroes behind the last member are padding here and an error there.
		if err == nil && errors.Is(wantErr, stdgzip.ErrChecksum) {
			t.Fatalf("%d bytes, but compress/gzip says %v", len(got), wantErr)
		}
	})
}
