package layercache

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FuzzServe: whatever an asker sends, packet after packet, the cache says something or ends, leaves nothing half made, and takes no more room than it may.
func FuzzServe(f *testing.F) {
	const bound = 64 << 20
	one := packed(f, 1, map[string]int{"etc/hello": 100})
	other := packed(f, 2, map[string]int{"etc/.wh.hello": 0, "b": 3000})
	f.Add(conversation(f, asked{Version: Version, Digest: one.digest(), Size: int64(len(one.data))}, one.data))
	f.Add(conversation(f,
		asked{Version: Version, Digest: one.digest(), Size: int64(len(one.data))}, one.data,
		asked{Version: Version, Digest: other.digest(), Size: int64(len(other.data))}, other.data))
	f.Add(conversation(f, asked{Version: Version, Digest: one.digest(), Size: 5 * pieceSize, Ranged: true}, make([]byte, packet-1)))
	f.Add(conversation(f, asked{Version: 2}, asked{Version: Version, Digest: "sha256:0", Size: -1}))
	f.Fuzz(func(t *testing.T, said []byte) {
		dir := t.TempDir()
		c := newCache(t, dir, bound)
		conn, done := asker(t, c, quick)
		go func() {
			for packet := range packets(said) {
				if _, err := conn.Write(packet); err != nil {
					break
				}
			}
			_ = conn.CloseWrite()
		}()
		for {
			var a answer
			if _, err := hear(conn, &a, false); err != nil {
				break
			}
		}
		<-done
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(left) != 3*len(c.layers) {
			t.Errorf("the cache has %d layers and the files %v (%v)", len(c.layers), left, err)
		}
		if c.taken < 0 || c.taken > bound {
			t.Errorf("%d bytes are taken of %d", c.taken, bound)
		}
		for chain, k := range c.layers {
			if _, err := os.Stat(filepath.Join(dir, chain+noteEnd)); err != nil || k.Size <= 0 {
				t.Errorf("a layer of %d bytes is kept: %v", k.Size, err)
			}
		}
	})
}

// conversation returns what an asker says, as the fuzzer has it: each packet with its length before it.
func conversation(f *testing.F, said ...any) []byte {
	f.Helper()
	var out []byte
	for _, s := range said {
		packet, is := s.([]byte)
		if !is {
			var err error
			if packet, err = json.Marshal(s); err != nil {
				f.Fatal(err)
			}
		}
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(packet))), packet...)
	}
	return out
}

// packets returns those of a conversation. The last may be shorter than it says.
func packets(said []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(said) >= 2 {
			n := min(int(binary.BigEndian.Uint16(said)), len(said)-2)
			if !yield(said[2 : 2+n]) {
				return
			}
			said = said[2+n:]
		}
	}
}
