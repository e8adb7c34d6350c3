package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// errStartOver is a checkpoint that turns out to be of no use.
var errStartOver = errors.New("the checkpoint of an earlier run cannot be used")

// stream brings an image that comes in one piece, in order: compressed as a whole, or from a source without ranges.
func (i *importing) stream(ctx context.Context) error {
	if i.old != nil && (i.old.State == nil || !i.info.Ranged && !i.info.Resumes) {
		i.old = nil
	}
	err := i.streamOnce(ctx)
	if errors.Is(err, errStartOver) && i.old != nil {
		i.say(err.Error() + "; started over")
		i.old, i.report.Resumed = nil, 0
		if i.sum != nil {
			i.sum = i.sum.fresh() // not the same one: a read that is under way may still be hashed
		}
		err = i.streamOnce(ctx)
	}
	return err
}

func (i *importing) streamOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &stream{importing: i}
	defer s.close()
	if err := s.connect(ctx); err != nil {
		return err
	}
	limit, err := i.disk.Limit()
	if err != nil {
		return err
	}
	s.out = newOutput(i.disk, limit, s.begin)
	if err := s.enter(); err != nil {
		return err
	}
	if s.finished {
		return nil
	}
	k := i.keep(s.claim, cancel)
	err = s.run(ctx)
	return i.finish(because(ctx, err), k)
}

// stream has the state of one pass through a stream.
type stream struct {
	*importing
	wrap     decode.Kind // the compression around it
	ahead    *source.Ahead
	feed     *feed
	dec      decode.Reader
	in       *window       // the image in what dec brings
	inner    decode.Reader // of an image that is compressed once more inside its archive, else nil
	image    *format.Decoder
	out      *output
	first    []byte // of the image, if it was looked at already
	finished bool   // by an earlier run

	states []decode.State // the last places from which decoding can begin again, oldest first
	noted  time.Time      // when the claim was renewed
	mu     sync.Mutex     // guards what follows
	last   note           // what can be claimed
}

func (s *stream) close() {
	if s.inner != nil {
		_ = s.inner.Close()
	}
	if s.dec != nil {
		_ = s.dec.Close()
	}
	if s.ahead != nil {
		_ = s.ahead.Close()
	}
	if s.out != nil {
		s.out.close()
	}
}

// connect begins to read and to decompress, where an earlier run left off if there was one.
func (s *stream) connect(ctx context.Context) error {
	var from int64
	var resume *decode.State
	if old := s.old; old != nil {
		resume, from = old.State, old.State.In
		if s.sum != nil {
			from = old.HashAt
			if err := s.sum.restore(old.Hash); err != nil || from > old.State.In {
				return errStartOver
			}
		}
	}
	var err error
	if s.ahead, err = source.NewAhead(ctx, s.blob, from, source.AheadOptions{}); err != nil {
		return err
	}
	if s.feed, err = newFeed(s.ahead, from, s.sum, s.meter); err != nil {
		return err
	}
	var src io.Reader = s.feed
	if resume != nil {
		s.wrap = resume.Kind
		_, err = io.CopyN(io.Discard, s.feed, resume.In-from) // hashed, but decoded before
	} else {
		src, err = s.sniff()
	}
	if err != nil {
		return err
	}
	if s.dec, err = decode.NewReader(s.wrap, src, decode.Options{Resume: resume, Every: s.every}); err != nil {
		return err
	}
	s.in = &window{dec: s.dec, from: s.base(), to: -1}
	if m := s.info.Member; m != nil {
		s.in.to = m.Offset + m.Size
	}
	if resume != nil {
		s.in.pos = resume.Out
	}
	return nil
}

// base returns where the image begins in the decoded stream.
func (s *stream) base() int64 {
	if m := s.info.Member; m != nil {
		return m.Offset
	}
	return 0
}

// next lends the image's next bytes.
func (s *stream) next() ([]byte, error) {
	if s.inner != nil {
		return s.inner.Next()
	}
	return s.in.Next()
}

// sniff looks at the first bytes to see how the stream is compressed. A disk that must not be interpreted is not.
func (s *stream) sniff() (io.Reader, error) {
	head := make([]byte, decode.HeadSize)
	n, err := 0, error(nil)
	for n < len(head) && err == nil {
		var m int
		m, err = s.feed.Read(head[n:])
		n += m
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !s.rawSource() {
		s.wrap = decode.Detect(head[:n])
	}
	return io.MultiReader(bytes.NewReader(head[:n]), s.feed), nil
}

// enter makes the decoder of the image's format: from its first bytes, or from what an earlier run kept.
func (s *stream) enter() error {
	if old := s.old; old != nil {
		if err := s.disk.Unpark(old.Parked); err != nil {
			return errors.Join(errStartOver, err)
		}
		image, err := format.Resume(old.Image, s.out)
		if s.finished {
			return nil
		}
		if err != nil {
			return errors.Join(errStartOver, err)
		}
		s.image = image
		s.in.from = s.base() + image.Offset()
		if s.in.from < s.in.pos {
			return errStartOver
		}
		return nil
	}
	p, err := s.next()
	if err == nil && s.info.Member != nil {
		p, err = s.unwrap(p)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(p) == 0 {
		return task.Errorf(task.BadImage, "%s is empty", s.info.Name)
	}
	kind := format.Raw
	if !s.rawSource() {
		kind = format.Detect(p, nil, -1)
		if err := s.refusePage(kind, s.wrap, p); err != nil {
			return err
		}
	}
	s.first = p
	s.name(kind)
	s.image, err = format.NewDecoder(kind, s.out)
	return err
}

// unwrap looks for compression around the image inside its archive. An image like that is not continued after a crash.
func (s *stream) unwrap(p []byte) ([]byte, error) {
	s.wrap = decode.Detect(p)
	if s.wrap == decode.None {
		return p, nil
	}
	src := io.MultiReader(bytes.NewReader(p), &windowReader{window: s.in})
	var err error
	if s.inner, err = decode.NewReader(s.wrap, src, decode.Options{}); err != nil {
		return nil, err
	}
	return s.inner.Next()
}

// name takes down what the image is.
func (s *stream) name(kind format.Kind) {
	s.note.Format = string(kind)
	if kind == format.Unsigned {
		s.note.Format = string(format.Raw) // unless it turns out otherwise
	}
	if s.wrap != decode.None {
		s.note.Format += "." + string(s.wrap)
	}
	s.report.Format = s.note.Format
}

// begin gets the size of the disk from the decoder of the image, before any data is put.
func (s *stream) begin(size int64) error {
	if s.old != nil {
		s.note.Format = s.old.Format
	}
	s.note.Virtual = size
	done, err := s.importing.begin(size)
	if done {
		s.finished = true
		return errors.New("finished already")
	}
	if size >= 0 {
		s.out.limit = size
	}
	return err
}

// run takes the stream apart to its end.
func (s *stream) run(ctx context.Context) error {
	if err := s.pass(ctx); err != nil {
		return err
	}
	size, err := s.image.Finish(ctx)
	if err != nil {
		return err
	}
	if err := s.out.settle(); err != nil {
		return err
	}
	if s.note.Virtual < 0 {
		s.name(s.image.Kind())
		if err := s.resize(size); err != nil {
			return err
		}
	}
	return s.drain()
}

// drain reads what follows the image: the rest of its archive, which must not hold another disk, and padding behind the
// compressed stream, which belongs to the checksum.
func (s *stream) drain() error {
	if s.inner != nil { // it may have stopped before its archive's member ends
		if _, err := io.Copy(io.Discard, &windowReader{window: s.in}); err != nil {
			return err
		}
	}
	if m := s.info.Member; m != nil && m.Rest != nil {
		if err := m.Rest(s.in.behind()); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, s.feed)
	return err
}

// pass hands what is decompressed to the image's decoder. If the source breaks off, the claim is renewed a last time.
func (s *stream) pass(ctx context.Context) error {
	p := s.first
	for {
		if len(p) > 0 {
			if _, err := s.image.Write(p); err != nil {
				return err
			}
		}
		if err := s.renew(time.Now()); err != nil {
			return err
		}
		var err error
		p, err = s.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return errors.Join(err, s.renew(s.noted.Add(s.Every)))
		}
	}
}

// resize gives the disk the size that only the end of the stream told.
func (s *stream) resize(size int64) error {
	if err := s.disk.Resize(size); err != nil {
		return err
	}
	s.report.Virtual = s.disk.Size()
	return nil
}

// renew takes down what can be claimed, about as often as notes are kept. It waits for what is under way, so that a
// claim never speaks of more than was written.
func (s *stream) renew(now time.Time) error {
	if s.inner != nil {
		return nil // dec is read by inner's goroutine, and a place in it is none in inner: such an import starts over
	}
	if st := s.dec.State(); st != nil && (len(s.states) == 0 || st.Out > s.states[len(s.states)-1].Out) {
		s.states = append(s.states, *st)
	}
	at := s.base() + s.image.Offset()
	for len(s.states) > 1 && s.states[1].Out <= at {
		s.states = s.states[1:]
	}
	if now.Sub(s.noted) < s.Every/2 {
		return nil
	}
	s.noted = now
	if err := s.out.settle(); err != nil {
		return err
	}
	image := s.image.State()
	if image == nil || len(s.states) == 0 || s.states[0].Out > at || s.out.reached > s.disk.Tail() {
		return nil
	}
	st := s.states[0]
	mark := s.feed.before(st.In)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = note{Mark: st.In, State: &st, Hash: mark.state, HashAt: mark.at, Image: image, Parked: s.image.Parked(),
		Format: s.note.Format, Virtual: s.note.Virtual}
	return nil
}

// claim fills in a note with what is done.
func (s *stream) claim(n *note) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.State == nil {
		return nil
	}
	n.Mark, n.State, n.Hash, n.HashAt = s.last.Mark, s.last.State, s.last.Hash, s.last.HashAt
	n.Image, n.Parked, n.Format, n.Virtual = s.last.Image, s.last.Parked, s.last.Format, s.last.Virtual
	return nil
}
