package decode

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-vm/berth/internal/task"
)

// frame compresses p with one of the encoder's levels and a checksum or none.
func frame(t testing.TB, p []byte, o ...zstd.EOption) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil, o...)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return e.EncodeAll(p, nil)
}

// streamFrame compresses p without telling the encoder how much there will be, in writes of so many bytes each of which
// ends a block.
func streamFrame(t testing.TB, p []byte, each int, o ...zstd.EOption) []byte {
	t.Helper()
	var b bytes.Buffer
	e, err := zstd.NewWriter(&b, o...)
	if err != nil {
		t.Fatal(err)
	}
	for len(p) > 0 {
		n := min(each, len(p))
		e.Write(p[:n])
		e.Flush()
		p = p[n:]
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestZstd(t *testing.T) {
	levels := []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression, zstd.SpeedBestCompression}
	for name, want := range map[string][]byte{
		"nothing": {}, "a byte": {1}, "text": sample(300000), "noise": noise(300000), "tiled": tiled(3<<20 + 17),
		"zeroes": make([]byte, 3<<20+1), "ones": bytes.Repeat([]byte{1}, 2<<20), "small": sample(50),
	} {
		for _, level := range levels {
			for _, sum := range []bool{true, false} {
				o := []zstd.EOption{zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(sum), zstd.WithWindowSize(1 << 20), zstd.WithZeroFrames(true)}
				for how, src := range map[string][]byte{
					"whole": frame(t, want, o...), "odd blocks": streamFrame(t, want, 50021, o...),
				} {
					got, err := all(t, Zstd, src, Options{})
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s, %s, level %v: %d bytes, %v; want %d", name, how, level, len(got), err, len(want))
					}
				}
			}
		}
	}
}

func TestZstdFrames(t *testing.T) {
	skip := []byte{0x53, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5}
	a, b := sample(chunkSize+777), tiled(400000)
	src := bytes.Join([][]byte{skip, frame(t, a), frame(t, nil, zstd.WithZeroFrames(true)), skip, skip, frame(t, b), frame(t, a), skip}, nil)
	want := bytes.Join([][]byte{a, b, a}, nil)
	if got, err := all(t, Zstd, src, Options{}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
	}
	if got, err := all(t, Zstd, skip, Options{}); err != nil || len(got) != 0 {
		t.Errorf("a frame without data: %d bytes, %v", len(got), err)
	}
	if _, err := all(t, Zstd, append(src, "garbage"...), Options{}); !isBad(err) {
		t.Errorf("garbage behind: %v", err)
	}
}

// A match must not reach into the frame before, even though its bytes are still there.
func TestZstdFramesAreApart(t *testing.T) {
	// No checksum, window 1 KiB; a compressed block: no literals, one sequence of no literals and a match of 3, all three
	// tables of a single symbol: 0 literals, offset code 2 (its two bits make 5, an offset of 2), match code 0.
	second := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0, 7<<3 | 2<<1 | 1, 0, 0, 0, 1, 0x54, 0, 2, 0, 0x05}
	if got, err := all(t, Zstd, append(frame(t, sample(5000)), second...), Options{}); !isBad(err) || !strings.Contains(err.Error(), "offset") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestZstdRefuses(t *testing.T) {
	var te *task.Error
	big := streamFrame(t, sample(1000), 1000, zstd.WithWindowSize(128<<20))
	_, err := all(t, Zstd, big, Options{})
	if !errors.As(err, &te) || te.Reason != task.UnsupportedImage || !strings.Contains(err.Error(), "window of 128 MiB and the limit is 64 MiB") {
		t.Errorf("a large window: %v", err)
	}
	_, err = all(t, Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x21, 7, 0, 1, 0, 0}, Options{})
	if !errors.As(err, &te) || te.Reason != task.UnsupportedImage {
		t.Errorf("a dictionary: %v", err)
	}
}

func TestZstdSums(t *testing.T) {
	src := frame(t, sample(100000))
	for _, at := range []int{len(src) - 1, len(src) - 4, len(src) / 2} {
		broken := bytes.Clone(src)
		broken[at] ^= 1
		if _, err := all(t, Zstd, broken, Options{}); !isBad(err) {
			t.Errorf("byte %d of %d changed: %v", at, len(src), err)
		}
	}
}

func TestZstdTruncatedAnywhere(t *testing.T) {
	src := frame(t, sample(3000))
	for n := range src {
		if _, err := all(t, Zstd, src[:n], Options{}); !isBad(err) {
			t.Fatalf("cut at %d of %d: %v", n, len(src), err)
		}
	}
}

func TestZstdResumesAtFrames(t *testing.T) {
	var src, want []byte
	for i := range 40 {
		p := sample(100000 + 777*i)
		want = append(want, p...)
		src = append(src, frame(t, p)...)
	}
	d, err := NewReader(Zstd, bytes.NewReader(src), Options{Every: 1})
	if err != nil {
		t.Fatal(err)
	}
	states := 0
	var n int64
	for {
		p, err := d.Next()
		if err != nil {
			break
		}
		n += int64(len(p))
		s := d.State()
		if s == nil {
			continue
		}
		states++
		if s.Out > n {
			t.Fatalf("after %d bytes the state is at %d", n, s.Out)
		}
		got, err := all(t, Zstd, src[s.In:], Options{Resume: s})
		if err != nil || !bytes.Equal(got, want[s.Out:]) {
			t.Fatalf("from %d: %d bytes, %v", s.Out, len(got), err)
		}
	}
	if states < 4 {
		t.Errorf("%d states", states)
	}
}

func FuzzZstd(f *testing.F) {
	for _, p := range [][]byte{nil, sample(40), sample(600), tiled(30000), noise(100), make([]byte, 200000)} {
		for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedBestCompression} {
			f.Add(frame(f, p, zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true)))
		}
	}
	f.Add(streamFrame(f, sample(700), 200))
	f.Fuzz(func(t *testing.T, src []byte) {
		const most = 4 << 20
		got, err := all(t, Zstd, src, Options{Limit: most, Memory: 8 << 20})
		z, wantErr := zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderConcurrency(1))
		if wantErr != nil {
			t.Fatal(wantErr)
		}
		defer z.Close()
		want, wantErr := io.ReadAll(io.LimitReader(z, most+1))
		var te *task.Error
		if errors.As(err, &te) && te.Reason != task.BadImage || len(want) > most || len(src) == 0 {
			return
		}
		if err == nil && wantErr == nil && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes; the other decoder has %d different ones", len(got), len(want))
		}
		if wantErr == nil && err != nil {
			t.Fatalf("%v; the other decoder has %d bytes and no error", err, len(want))
		}
	})
}

// spliced has blocks of zeroes between the blocks of a frame without a checksum: what comes behind them looks back into them, or beyond.
func spliced(t testing.TB, src []byte, zeroes ...int) []byte {
	t.Helper()
	var h zstd.Header
	if err := h.Decode(src); err != nil || h.HasCheckSum {
		t.Fatalf("not a frame for this: %+v, %v", h, err)
	}
	out, src := bytes.Clone(src[:h.HeaderSize]), src[h.HeaderSize:]
	for i := 0; len(src) > 0; i++ {
		n := 3 + (int(src[0])|int(src[1])<<8|int(src[2])<<16)>>3
		if src[0]>>1&3 == 1 {
			n = 3 + 1
		}
		if i > 0 && i <= len(zeroes) {
			for left := zeroes[i-1]; left > 0; left -= mostOfBlock {
				b := min(left, mostOfBlock)<<3 | 1<<1
				out = append(out, byte(b), byte(b>>8), byte(b>>16), 0)
			}
		}
		out, src = append(out, src[:n]...), src[n:]
	}
	return out
}

// TestZstdHoles: the result is the same as that of the decoder when it sees every block, tables and matches that reach across
// holes included.
func TestZstdHoles(t *testing.T) {
	for name, p := range map[string][]byte{"text": sample(600000), "noise": noise(600000), "tiled": tiled(600000)} {
		for _, window := range []int{64 << 10, 1 << 20} {
			for _, each := range []int{30000, 131072} {
				src := streamFrame(t, p, each, zstd.WithEncoderCRC(false), zstd.WithWindowSize(window))
				src = spliced(t, src, 5<<20, 1, window-1, window, window+mostOfBlock+1, 3*chunkSize+77)
				d, err := zstd.NewReader(bytes.NewReader(src))
				if err != nil {
					t.Fatal(err)
				}
				want, werr := io.ReadAll(d)
				d.Close()
				got, err := all(t, Zstd, src, Options{})
				if (err == nil) != (werr == nil) || !bytes.Equal(got, want) {
					t.Errorf("%s, window %d, blocks of %d: %d bytes, %v; want %d, %v", name, window, each, len(got), err, len(want), werr)
				}
				if cut, err := all(t, Zstd, src[:len(src)/2], Options{}); err == nil {
					t.Errorf("%s, window %d, blocks of %d: half of it is %d bytes and no error", name, window, each, len(cut))
				}
			}
		}
	}
}

// TestZstdHolesSummed: size and checksum of a frame count what was left out.
func TestZstdHolesSummed(t *testing.T) {
	p := bytes.Join([][]byte{sample(200000), make([]byte, 20<<20), sample(200000), make([]byte, 9<<20+5)}, nil)
	for name, src := range map[string][]byte{"sized": frame(t, p), "streamed": streamFrame(t, p, len(p))} {
		if got, err := all(t, Zstd, src, Options{}); err != nil || !bytes.Equal(got, p) {
			t.Fatalf("%s: %d bytes, %v; want %d", name, len(got), err, len(p))
		}
		broken := bytes.Clone(src)
		broken[len(src)-2] ^= 1
		if _, err := all(t, Zstd, broken, Options{}); !isBad(err) {
			t.Errorf("%s: another checksum: %v", name, err)
		}
	}
	src := frame(t, p)
	src[6]++ // the size in the header
	if _, err := all(t, Zstd, src, Options{}); !isBad(err) {
		t.Errorf("another size: %v", err)
	}
}
