package lazylayer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"

	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/layertoc"
)

// errTable means that a table of contents is not to be used any more. The pass finds out what is right.
var errTable = errors.New("the layer's table of contents is wrong")

// tabled is the file of a layer whose parts a table of contents names.
type tabled struct {
	*layertoc.Table
	from, to int64 // where the file is in the decompressed layer
}

// edgePiece describes a piece of which only a part lies in the file: the first and the last one.
type edgePiece struct {
	at   int64 // where it begins in the piece
	data []byte
}

// readTable finds out where the parts of the file are, if the layer has a table that can be used. Without one there is the pass.
func (l *Layer) readTable(ctx context.Context) {
	if l.kind == decode.None || l.State().Proven {
		return
	}
	m := l.info.Member
	t, err := layertoc.Read(ctx, l.blob, l.kind, m)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.noTable = err; t != nil {
		l.table, l.hasTable = &tabled{t, m.Offset, m.Offset + m.Size}, true
	}
}

// has returns what the file has of a piece.
func (t *tabled) has(i int64) (from, to int64) {
	return max(i*pieceSize, t.from), min((i+1)*pieceSize, t.to)
}

// part returns the number of the part that a byte of the decompressed layer is in.
func (t *tabled) part(at int64) int {
	return sort.Search(len(t.Parts), func(n int) bool { return t.from+t.End(n) > at })
}

// ahead returns the table, if it is needed for piece i: the pass has not reached the piece, and the file has a part in it.
func (l *Layer) ahead(i int64) *tabled {
	if l.table == nil || l.proven || l.index.Plain >= 0 || l.reached >= (i+1)*pieceSize {
		return nil
	}
	if from, to := l.table.has(i); from >= to {
		return nil
	}
	return l.table
}

// key returns what a fetch by the table is known by, never that of another: pieces of the same part are fetched by one.
func (t *tabled) key(i int64) int64 {
	from, _ := t.has(i)
	return math.MinInt64 + int64(t.part(from))
}

// readEnd copies what a piece that is not all in the file has from byte at on, by the table; false if that is not for the table to say.
func (l *Layer) readEnd(p []byte, i, at int64) (n int, ok bool, err error) {
	for {
		l.mu.Lock()
		t, e := l.ahead(i), l.ends[i]
		switch {
		case l.condemned != nil:
			err = l.condemned
		case e.data != nil && at >= e.at && at < e.at+int64(len(e.data)):
			n = copy(p, e.data[at-e.at:])
		case t == nil || t.whole(i) || e.data != nil || l.summed(i):
			l.mu.Unlock()
			return 0, false, nil
		default:
			if from, to := t.has(i); i*pieceSize+at < from || i*pieceSize+at >= to {
				l.mu.Unlock()
				return 0, false, nil
			}
			if f := l.fetched(t.key(i), i, t); f.err != nil {
				return 0, true, f.err
			}
			continue
		}
		l.mu.Unlock()
		return n, true, err
	}
}

// summed reports whether all of the piece was seen.
func (l *Layer) summed(i int64) bool { return i < int64(len(l.sums)) && l.sums[i] != (pieceSum{}) }

// whole reports whether all of the piece is in the file.
func (t *tabled) whole(i int64) bool {
	from, to := t.has(i)
	return to-from == pieceSize
}

// enterTable fetches the parts that piece i is in, and hands over every piece that they have all of.
func (l *Layer) enterTable(t *tabled, i int64) (map[int64][]byte, error) {
	leave, err := l.turn()
	if err != nil {
		return nil, err
	}
	defer leave()
	from, to := t.has(i)
	first := t.part(from)
	if p := t.Parts[first]; !p.Zero {
		from = t.from + p.At
	}
	data, err := l.parts(t, first, from, to)
	if err != nil {
		return nil, err
	}
	out := map[int64][]byte{}
	for n := from / pieceSize; n*pieceSize < from+int64(len(data)); n++ {
		lo, hi := t.has(n)
		if lo < from || hi > from+int64(len(data)) {
			continue
		}
		b := bytes.Clone(data[lo-from : hi-from])
		if !t.whole(n) {
			l.seenEnd(n, edgePiece{lo - n*pieceSize, b})
			continue
		}
		if err := l.seen(n, b); err != nil {
			return nil, err
		}
		out[n] = b
	}
	return out, nil
}

// parts reads parts from the numbered one on, beginning at a byte of the decompressed layer, until they have the byte before to.
func (l *Layer) parts(t *tabled, n int, from, to int64) ([]byte, error) {
	var data []byte
	for n < len(t.Parts) && from+int64(len(data)) < to {
		if t.Parts[n].Zero {
			stop := min(t.from+t.End(n), to)
			data = append(data, make([]byte, stop-from-int64(len(data)))...)
			n++
			continue
		}
		last := n // of a run without gaps: what lies between two parts may be any size
		for last+1 < len(t.Parts) && !t.Parts[last+1].Zero && t.Parts[last].To == t.Parts[last+1].From && t.from+t.End(last) < to {
			last++
		}
		more, err := l.run(t, n, last)
		if err != nil {
			return nil, err
		}
		data, n = append(data, more...), last+1
	}
	return data, nil
}

// run reads parts that lie behind each other, and compares each with its digest.
func (l *Layer) run(t *tabled, first, last int) ([]byte, error) {
	in := t.Parts[first].From
	coded, err := bring(l.ctx, l.blob, in, t.Parts[last].To-in)
	if err != nil {
		return nil, err
	}
	var data []byte
	for n := first; n <= last; n++ {
		p := t.Parts[n]
		r, err := decode.NewReader(l.kind, bytes.NewReader(coded[p.From-in:min(p.To-in, int64(len(coded)))]), decode.Options{})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errTable, err)
		}
		part := make([]byte, t.End(n)-p.At)
		_, err = io.ReadFull(r, part)
		_ = r.Close() // of bytes in memory
		if err != nil {
			return nil, fmt.Errorf("%w: part %d: %w", errTable, n, err)
		}
		if sha256.Sum256(part) != p.Sum {
			return nil, fmt.Errorf("%w: the digest of part %d is another", errTable, n)
		}
		data = append(data, part...)
	}
	return data, nil
}

// dropTable continues without the table.
func (l *Layer) dropTable(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.table != nil {
		l.table, l.hasTable, l.noTable = nil, false, why
	}
}

// seenEnd records the sum of a piece that the table gives. The pass compares it when it reaches the piece, as it does with the
// sums of whole pieces; if the pass was there already, its sum counts.
func (l *Layer) seenEnd(i int64, e edgePiece) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.ends[i]; was.data == nil && !l.summed(i) {
		if l.ends == nil {
			l.ends = map[int64]edgePiece{}
		}
		l.ends[i] = e
	}
}

// in reports whether the piece has these bytes where they should be.
func (e edgePiece) in(b []byte) bool {
	to := e.at + int64(len(e.data))
	return len(e.data) == 0 || to <= int64(len(b)) && bytes.Equal(b[e.at:to], e.data)
}
