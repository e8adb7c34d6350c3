package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"hash/crc64"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/therootcompany/xz"

	"github.com/berth-vm/berth/internal/task"
)

// noise does not compress.
func noise(n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{7}).Read(p)
	return p
}

// tiled returns the same 20000 bytes over and over, with a hole and a counter in each: long matches at long distances, over every
// boundary of pages.
func tiled(n int) []byte {
	tile := sample(20000)
	clear(tile[5000:9000])
	p := make([]byte, 0, n+len(tile))
	for i := uint32(0); len(p) < n; i++ {
		binary.BigEndian.PutUint32(tile, i)
		p = append(p, tile...)
	}
	return p[:n]
}

// The files were made with xz 5.4.1; xz_host_test.go makes the like of them again.
var xzFiles = map[string][]byte{
	"blocks.xz":       sample(100000), // -T2 --block-size=16KiB -0
	"single.xz":       sample(100000), // -T1 -9e
	"crc32.xz":        sample(20000),  // -C crc32
	"sha256.xz":       sample(20000),  // -C sha256 --block-size=7001
	"none.xz":         sample(20000),  // -C none
	"lp4.xz":          sample(20000),  // --lzma2=lc=0,lp=4,pb=0
	"dict4k.xz":       sample(20000),  // --lzma2=lc=4,lp=0,pb=4,dict=4KiB
	"tiny.xz":         sample(500),
	"tiny-blocks.xz":  sample(500),                                             // --block-size=200
	"empty.xz":        nil,                                                     //
	"noise.xz":        noise(3000),                                             //
	"tiled.xz":        tiled(5 << 20),                                          //
	"tiled-blocks.xz": tiled(5 << 20),                                          // -T2 --block-size=1048699
	"streams.xz":      bytes.Join([][]byte{sample(20000), sample(20000)}, nil), // crc32, padding, empty, sha256, padding
}

func xzFile(t testing.TB, name string) []byte {
	t.Helper()
	p, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestXz(t *testing.T) {
	for name, want := range xzFiles {
		src := xzFile(t, name)
		for how, r := range map[string]io.Reader{
			"whole": bytes.NewReader(src), "halves": iotest.HalfReader(bytes.NewReader(src)),
			"bytes": iotest.OneByteReader(bytes.NewReader(src)),
		} {
			d, err := NewReader(Xz, r, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(d)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %s: %d bytes, %v; want %d", name, how, len(got), err, len(want))
			}
			d.Close()
		}
	}
}

// One processor must not be a special case: blocks wait for each other differently then.
func TestXzOneWorker(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, want := range xzFiles {
		if got, err := all(t, Xz, xzFile(t, name), Options{Resume: &State{Kind: Xz}}); err == nil {
			t.Errorf("%s: a state without data was taken: %d bytes", name, len(got))
		}
		d, err := NewReader(Xz, bytes.NewReader(xzFile(t, name)), Options{Memory: 1 << 27})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(d); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
		}
	}
}

func TestXzRefuses(t *testing.T) {
	for name, want := range map[string]string{
		"x86.xz":      "filter 0x4",
		"dict128m.xz": "dictionary of 128 MiB and the limit is 64 MiB",
	} {
		_, err := all(t, Xz, xzFile(t, name), Options{})
		var te *task.Error
		if !errors.As(err, &te) || te.Reason != task.UnsupportedImage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if got, err := all(t, Xz, xzFile(t, "dict128m.xz"), Options{Memory: 128 << 20}); err != nil || !bytes.Equal(got, sample(20000)) {
		t.Errorf("a larger limit: %d bytes, %v", len(got), err)
	}
}

func TestXzEveryBitMatters(t *testing.T) {
	for _, name := range []string{"sha256.xz", "empty.xz", "noise.xz"} {
		src := xzFile(t, name)
		for i := range src {
			if i > 200 && i < len(src)-200 && i%61 != 0 {
				continue
			}
			broken := bytes.Clone(src)
			broken[i] ^= 1 << (i % 8)
			if got, err := all(t, Xz, broken, Options{}); err == nil {
				t.Fatalf("%s with a bit of byte %d changed: %d bytes and no error", name, i, len(got))
			}
		}
	}
}

func TestXzTruncatedAnywhere(t *testing.T) {
	for _, name := range []string{"sha256.xz", "empty.xz"} {
		src := xzFile(t, name)
		for n := range src {
			if n > 200 && n < len(src)-200 && n%61 != 0 {
				continue
			}
			if _, err := all(t, Xz, src[:n], Options{}); !isBad(err) {
				t.Fatalf("%s cut at %d of %d: %v", name, n, len(src), err)
			}
		}
	}
}

func TestXzSourceError(t *testing.T) {
	reset := errors.New("connection reset")
	src := xzFile(t, "sha256.xz")
	for _, cut := range []int{0, 3, 12, 40, 5000, len(src) - 3} {
		d, err := NewReader(Xz, io.MultiReader(bytes.NewReader(src[:cut]), iotest.ErrReader(reset)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, d); !errors.Is(err, reset) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

func TestXzResumesAtEveryBlock(t *testing.T) {
	for _, name := range []string{"blocks.xz", "tiled-blocks.xz", "streams.xz"} {
		want, src := xzFiles[name], xzFile(t, name)
		d, err := NewReader(Xz, bytes.NewReader(src), Options{Every: 1})
		if err != nil {
			t.Fatal(err)
		}
		states := 0
		var last *State
		for {
			if _, err := d.Next(); err != nil {
				break
			}
			s := d.State()
			if s == nil || s == last {
				continue
			}
			states, last = states+1, s
			got, err := all(t, Xz, src[s.In:], Options{Resume: s})
			if err != nil || !bytes.Equal(got, want[s.Out:]) {
				t.Fatalf("%s from %d: %d bytes, %v; want %d", name, s.Out, len(got), err, len(want)-int(s.Out))
			}
		}
		if states < 3 {
			t.Errorf("%s: %d states", name, states)
		}
	}
}

func TestSum64(t *testing.T) {
	p := noise(50000)
	clear(p[3000:30000])
	for _, cut := range [][2]int{{0, 0}, {0, 4096}, {3000, 30000}, {0, 50000}, {17, 49999}, {8192, 8192 + 4096}} {
		q := p[cut[0]:cut[1]]
		for _, crc := range []uint64{0, 1, 1 << 63, 0x123456789abcdef0} {
			if got, want := sum64(crc, q), crc64.Update(crc, ecma, q); got != want {
				t.Errorf("%v from %x: %x, want %x", cut, crc, got, want)
			}
		}
	}
}

func FuzzXz(f *testing.F) {
	for _, name := range []string{"empty.xz", "tiny.xz", "tiny-blocks.xz"} {
		f.Add(xzFile(f, name))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		const most = 4 << 20
		src = mendXz(src)
		got, err := all(t, Xz, src, Options{Limit: most, Memory: 1 << 24})
		var want []byte
		z, wantErr := xz.NewReader(bytes.NewReader(src), 1<<24)
		if wantErr == nil {
			want, wantErr = io.ReadAll(io.LimitReader(z, most+1))
		}
		var te *task.Error
		if errors.As(err, &te) && te.Reason != task.BadImage { // it decodes filters and checks that are refused here
			return
		}
		if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, %v; the other decoder has %d, %v", len(got), err, len(want), wantErr)
		}
	})
}

// mendXz puts the right checksum into the headers, which no fuzzer would find by itself.
func mendXz(src []byte) []byte {
	src = bytes.Clone(src)
	if len(src) < 13 {
		return src
	}
	binary.LittleEndian.PutUint32(src[8:], crc32.ChecksumIEEE(src[6:8]))
	if n := (int(src[12]) + 1) * 4; src[12] != 0 && len(src) > 12+n {
		binary.LittleEndian.PutUint32(src[12+n-4:], crc32.ChecksumIEEE(src[12:12+n-4]))
	}
	return src
}
