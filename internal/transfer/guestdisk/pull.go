package guestdisk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/berth-vm/berth/internal/nbd"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/tlsserver"
)

// pulled is a disk that clients fetch: a map of it, and its data.
type pulled struct {
	name string
	size int64
	io.ReaderAt
	// walk calls each with the extents in [from, to), in order and without gaps.
	walk func(ctx context.Context, from, to int64, each func(nbd.Extent) error) error
	// changes: the extents are those that changed since the backup before, and others. Otherwise they are of data, holes and zeroes.
	changes bool
	// settled returns an error if the disk is not the same any more; nil: it stays as it is.
	settled func() error
	rest    rest
}

// wanted reports whether a client has to fetch an extent.
func (p *pulled) wanted(e nbd.Extent) bool {
	if p.changes {
		return e.Flags&nbd.Dirty != 0
	}
	return e.Flags&nbd.Zero == 0
}

// words describe an extent.
func (p *pulled) words(e nbd.Extent) string {
	switch {
	case p.changes && e.Flags&nbd.Dirty != 0:
		return "dirty"
	case p.changes:
		return "clean"
	}
	return [...]string{"data", "hole", "zero", "hole,zero"}[e.Flags&(nbd.Hole|nbd.Zero)]
}

// extent is a part of a disk, as clients of the map know it. Type has the flags of the NBD protocol.
type extent struct {
	Offset      int64  `json:"offset"`
	Length      int64  `json:"length"`
	Type        uint32 `json:"type"`
	Description string `json:"description"`
}

// mapPage is a page of a map. NextOffset is where the next one begins; nil: this is the last.
type mapPage struct {
	Extents    []extent `json:"extents"`
	NextOffset *int64   `json:"next_offset"`
}

// mostExtents is how many extents a page of the map has at most, and if nothing else is asked for.
const mostExtents = 10000

var errPageFull = errors.New("the page is full")

// serveMap answers with the extents from offset on, a page at a time.
func (p *pulled) serveMap(w http.ResponseWriter, r *http.Request) error {
	from, to, ok := p.part(w, r)
	if !ok {
		return nil
	}
	page, ok := number(w, r, "page_size", mostExtents, 1, 1<<31)
	if !ok {
		return nil
	}
	answer := mapPage{Extents: []extent{}}
	err := p.walk(r.Context(), from, to, func(e nbd.Extent) error {
		if int64(len(answer.Extents)) == min(page, mostExtents) {
			answer.NextOffset = &e.Offset
			return errPageFull
		}
		answer.Extents = append(answer.Extents, extent{e.Offset, e.Length, e.Flags, p.words(e)})
		return nil
	})
	if err != nil && !errors.Is(err, errPageFull) {
		return broken(w, r, err, false)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client is gone
	return nil
}

// serveData answers with the bytes from offset on.
func (p *pulled) serveData(w http.ResponseWriter, r *http.Request) error {
	from, to, ok := p.part(w, r)
	if !ok {
		return nil
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(to-from, 10))
	buf := make([]byte, min(dataPiece, to-from))
	for at := from; at < to; {
		n, err := p.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
		if err == nil || errors.Is(err, io.EOF) && n > 0 {
			err = p.same()
		}
		if err != nil {
			return broken(w, r, err, at > from)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return nil //nolint:nilerr // the client is gone, and may come back
		}
		at += int64(n)
	}
	p.rest.fetched(from, to)
	return nil
}

// dataPiece is how much is read at once.
const dataPiece = 1 << 20

func (p *pulled) same() error {
	if p.settled == nil {
		return nil
	}
	return p.settled()
}

// broken ends an answer that cannot be completed, and returns the error. A client that is gone is none. If the answer has begun, what is missing
// shows that it is not complete.
func broken(w http.ResponseWriter, r *http.Request, err error, begun bool) error {
	if r.Context().Err() != nil {
		return nil
	}
	if !begun {
		http.Error(w, "the disk cannot be read any more", http.StatusInternalServerError)
	}
	return err
}

// part returns the part of the disk that a request is about.
func (p *pulled) part(w http.ResponseWriter, r *http.Request) (from, to int64, ok bool) {
	if from, ok = number(w, r, "offset", 0, 0, p.size); !ok {
		return 0, 0, false
	}
	length, ok := number(w, r, "length", p.size-from, 0, p.size-from)
	return from, from + length, ok
}

// number returns a number of a request's query.
func number(w http.ResponseWriter, r *http.Request, name string, otherwise, least, most int64) (int64, bool) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		http.Error(w, fmt.Sprintf("%s must be a number from %d to %d", name, least, most), http.StatusBadRequest)
		return 0, false
	}
	return n, true
}

// pulled returns the disk as clients fetch it.
func (d *Disk) pulled(read *atomic.Int64) *pulled {
	name := allocation
	if d.bitmap != "" {
		name = d.bitmap
	}
	return &pulled{name: d.volume, size: d.client.Size(), ReaderAt: counted{d, read}, changes: d.bitmap != "",
		walk: func(_ context.Context, from, to int64, each func(nbd.Extent) error) error {
			err := d.client.ExtentsIn(name, from, to, each)
			if err != nil && !errors.Is(err, errPageFull) {
				err = task.Errorf(task.SourceUnavailable, "list what disk %s of the guest has: %w", d.volume, err)
			}
			return err
		}}
}

// pulled returns the disk as clients fetch it: what is between its data is holes.
func (s *still) pulled() *pulled {
	return &pulled{name: s.name, size: s.size, ReaderAt: s, settled: s.settled, walk: func(ctx context.Context, from, to int64, each func(nbd.Extent) error) error {
		if s.block {
			return each(nbd.Extent{Offset: from, Length: to - from})
		}
		data, err := sink.DataIn(ctx, s.file, from, to)
		if err != nil {
			return err
		}
		at := from
		for _, d := range append(data, [2]int64{to, 0}) {
			for _, e := range []nbd.Extent{{Offset: at, Length: d[0] - at, Flags: nbd.Hole | nbd.Zero}, {Offset: d[0], Length: d[1]}} {
				if e.Length <= 0 {
					continue
				}
				if err := each(e); err != nil {
					return err
				}
			}
			at = d[0] + d[1]
		}
		return nil
	}}
}

// pull lets clients fetch the disks until it is told to stop.
func (j *Job) pull(ctx context.Context) error {
	var disks []*pulled
	if len(j.task.Files) > 0 {
		open, done, err := j.openAllStill()
		defer done()
		if err != nil {
			return err
		}
		for _, s := range open {
			disks = append(disks, s.pulled())
		}
		return j.serve(ctx, disks)
	}
	open, done, err := j.openServed(ctx, j.task.Bitmap)
	defer done()
	if err != nil {
		return err
	}
	for _, d := range open {
		disks = append(disks, d.pulled(&j.read))
	}
	return j.serve(ctx, disks)
}

// serve serves the disks until ctx ends, or one of them cannot be read any more.
func (j *Job) serve(ctx context.Context, disks []*pulled) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	mux := http.NewServeMux()
	for _, d := range disks {
		if err := d.rest.begin(ctx, d); err != nil {
			return err
		}
		for what, answer := range map[string]func(http.ResponseWriter, *http.Request) error{"map": d.serveMap, "data": d.serveData} {
			mux.HandleFunc("GET /exports/"+d.name+"/"+what, func(w http.ResponseWriter, r *http.Request) {
				if err := answer(w, r); err != nil {
					stop(err)
					panic(http.ErrAbortHandler)
				}
			})
		}
	}
	server, err := tlsserver.ForPeople(j.task.Serve.TLSDir, tlsserver.Guarded(j.task.Serve.TokenDir, mux))
	if err != nil {
		return task.Errorf(task.BadTask, "%w", err)
	}
	j.pulled.Store(&disks)
	err = tlsserver.Serve(ctx, j.task.Serve.Listen, server, func(net.Addr) { j.stage.Store(task.Transferring) })
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
