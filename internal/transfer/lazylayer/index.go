package lazylayer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"

	"github.com/berth-vm/berth/internal/transfer/decode"
)

// index lists the positions where a decoder can begin, and the sum of each piece. It is written when the digest was right.
type index struct {
	Kind   decode.Kind `json:"kind"`
	Plain  int64       `json:"plain"` // decompressed bytes, -1 while nobody knows
	Places []place     `json:"places,omitempty"`
	Sums   []byte      `json:"sums"`
}

// place is a state of the decoder, without its data, which is n bytes from at of the file of states.
type place struct {
	In  int64 `json:"in"`
	Out int64 `json:"out"`
	At  int64 `json:"at"`
	N   int   `json:"n"`
}

// longestIndex bounds what is read of an index: one of a layer of a TB has less.
const longestIndex = 256 << 20

// mostState bounds the data of one state; gzip's has 32 KiB and a little.
const mostState = 1 << 20

// between returns the smallest distance of two positions. It grows with the layer, so that the index stays below an eighth of the
// cache: a layer is decompressed to some four times its size, and a position takes 32 KiB.
func between(size, limit int64) int64 {
	const least, each = 4 << 20, 33 << 10
	return max(least, 4*size*each/(limit/8))
}

func (l *Layer) statesPath() string { return filepath.Join(l.dir, statesName) }

// note adds a state to the index, on the pass.
func (l *Layer) note(s *decode.State) error {
	p := place{In: s.In, Out: s.Out, N: len(s.Data)}
	if n := len(l.index.Places); n > 0 {
		last := l.index.Places[n-1]
		if s.Out <= last.Out {
			return nil // from before the pass was begun again
		}
		p.At = last.At + int64(last.N)
	}
	if p.N > mostState {
		return nil // it is entered at the place before
	}
	l.cache.charge(l.name, int64(p.N))
	if _, err := l.states.WriteAt(s.Data, p.At); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	l.mu.Lock()
	l.index.Places = append(l.index.Places, p)
	l.mu.Unlock()
	return nil
}

// save stores the index for the next process: first the files that it refers to, then the index, which gets its name when it is complete.
func (l *Layer) save() error {
	l.mu.Lock()
	out := l.index
	out.Sums = make([]byte, 0, len(l.sums)*len(pieceSum{}))
	for _, s := range l.sums {
		out.Sums = append(out.Sums, s[:]...)
	}
	l.mu.Unlock()
	if l.states != nil {
		if err := l.states.Sync(); err != nil {
			return fmt.Errorf("write the index: %w", err)
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode the index: %w", err)
	}
	l.cache.charge(l.name, int64(len(text)))
	f, err := os.CreateTemp(l.dir, "new-*")
	if err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(l.dir, indexName))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err is what matters
		return fmt.Errorf("write the index: %w", err)
	}
	return nil
}

// recall reads the index of an earlier process; false if there is none that can be used.
func (l *Layer) recall() bool {
	f, err := os.Open(filepath.Join(l.dir, indexName))
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, longestIndex))
	var in index
	if err != nil || json.Unmarshal(text, &in) != nil || !in.sound(l.info.Size) {
		return false
	}
	if in.Kind != decode.None {
		if l.states, err = os.Open(l.statesPath()); err != nil {
			return false
		}
	}
	l.sums = make([]pieceSum, len(in.Sums)/len(pieceSum{}))
	for i := range l.sums {
		copy(l.sums[i][:], in.Sums[i*len(pieceSum{}):])
	}
	in.Sums = nil
	l.kind, l.index, l.reached, l.proven = in.Kind, in, in.Plain, true
	return true
}

// sound reports whether an index can be one of a layer of size bytes.
func (x *index) sound(size int64) bool {
	pieces := (x.Plain + pieceSize - 1) / pieceSize
	if x.Plain < 0 || int64(len(x.Sums)) != pieces*int64(len(pieceSum{})) || x.Kind == decode.None && x.Plain != size {
		return false
	}
	last := place{In: -1, Out: -1}
	for _, p := range x.Places {
		if p.In < last.In || p.In > size || p.Out <= last.Out || p.Out > x.Plain || p.N < 0 || p.N > mostState || p.At != last.At+int64(last.N) {
			return false
		}
		last = p
	}
	return true
}

// before returns the number of the last place at or before a decompressed byte, -1 for the layer's beginning.
func (l *Layer) before(at int64) int {
	return sort.Search(len(l.index.Places), func(i int) bool { return l.index.Places[i].Out > at }) - 1
}

// key returns what a fetch of piece i is known by: pieces that are entered at the same place are fetched by one.
func (l *Layer) key(i int64) int64 {
	if l.kind == decode.None || i*pieceSize >= l.reached {
		return i
	}
	return -2 - int64(l.before(i*pieceSize)) // never that of a piece
}

// state reads a place back; nil for the beginning. end is where the next one is, -1 if there is none.
func (l *Layer) state(i int64) (s *decode.State, end int64, err error) {
	l.mu.Lock()
	n := l.before(i * pieceSize)
	end = -1
	if n+1 < len(l.index.Places) {
		end = l.index.Places[n+1].Out
	}
	if n < 0 {
		l.mu.Unlock()
		return nil, end, nil
	}
	p := l.index.Places[n]
	l.mu.Unlock()
	s = &decode.State{Kind: l.kind, In: p.In, Out: p.Out, Data: make([]byte, p.N)}
	if _, err := l.states.ReadAt(s.Data, p.At); err != nil {
		return nil, 0, fmt.Errorf("read the index: %w", err)
	}
	return s, end, nil
}
