package ingest

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/expand"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/imagestream"
	"github.com/berth-vm/berth/internal/transfer/resume"
)

// stream brings an image that comes in one piece, in order: compressed as a whole, or from a source without ranges.
func (i *importing) stream(ctx context.Context) error {
	if i.old != nil && (i.old.State == nil || !i.info.Ranged && !i.info.Resumes) {
		i.old = nil
	}
	err := i.streamOnce(ctx)
	if errors.Is(err, resume.ErrStartOver) && i.old != nil {
		i.Record.Say(err.Error() + "; started over")
		i.old, i.Record.Report.Resumed = nil, 0
		if i.sum != nil {
			i.sum = i.sum.Fresh() // not the same one: a read that is under way may still be hashed
		}
		err = i.streamOnce(ctx)
	}
	return err
}

func (i *importing) streamOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in, err := imagestream.Open(ctx, i.blob, i.old, i.options(i.sum))
	if err != nil {
		return err
	}
	defer in.Close()
	limit, err := i.disk.Limit()
	if err != nil {
		return err
	}
	s := &stream{importing: i, in: in}
	s.out = expand.NewWriter(i.disk, limit, s.begin)
	defer s.out.Close()
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
	in       *imagestream.Reader
	image    *format.Decoder
	out      *expand.Writer
	first    []byte // of the image, if it was looked at already
	finished bool   // by an earlier run

	noted time.Time   // when the claim was renewed
	mu    sync.Mutex  // guards what follows
	last  resume.Note // what can be claimed
}

// enter makes the decoder of the image's format: from its first bytes, or from what an earlier run kept.
func (s *stream) enter() error {
	if old := s.old; old != nil {
		if err := s.disk.Unpark(old.Parked); err != nil {
			return errors.Join(resume.ErrStartOver, err)
		}
		image, err := format.Resume(old.Image, s.out)
		if s.finished {
			return nil
		}
		if err != nil {
			return errors.Join(resume.ErrStartOver, err)
		}
		s.image = image
		return s.in.SkipTo(image.Offset())
	}
	p, err := s.in.First()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(p) == 0 {
		return task.Errorf(task.BadImage, "%s is empty", s.info.Name)
	}
	kind := format.Raw
	if !s.raw() {
		kind = format.Detect(p, nil, -1)
		if err := s.refusePage(kind, s.in.Compression(), p); err != nil {
			return err
		}
	}
	s.first = p
	s.name(kind)
	s.image, err = format.NewDecoder(kind, s.out)
	return err
}

// name takes down what the image is.
func (s *stream) name(kind format.Kind) {
	s.note.Format = string(kind)
	if kind == format.Unsigned {
		s.note.Format = string(format.Raw) // unless it turns out otherwise
	}
	if wrap := s.in.Compression(); wrap != decode.None {
		s.note.Format += "." + string(wrap)
	}
	s.Record.Report.Format = s.note.Format
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
	if err := s.out.Settle(); err != nil {
		return err
	}
	if s.note.Virtual < 0 {
		s.name(s.image.Kind())
		if err := s.resize(size); err != nil {
			return err
		}
	}
	return s.in.Drain()
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
		p, err = s.in.Next()
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
	s.Record.Report.Virtual = s.disk.Size()
	return nil
}

// renew takes down what can be claimed, about as often as notes are kept. It waits for what is under way, so that a
// claim never speaks of more than was written.
func (s *stream) renew(now time.Time) error {
	if !s.in.Continuable() {
		return nil // such an import starts over
	}
	offset := s.image.Offset()
	s.in.Observe(offset)
	if now.Sub(s.noted) < s.Every/2 {
		return nil
	}
	s.noted = now
	if err := s.out.Settle(); err != nil {
		return err
	}
	image := s.image.State()
	if image == nil || s.out.Reached() > s.disk.Tail() {
		return nil
	}
	place := s.in.Place(offset)
	if place == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = resume.Note{Mark: place.State.In, State: &place.State, Hash: place.Hash, HashAt: place.HashAt, Image: image, Parked: s.image.Parked(),
		Format: s.note.Format, Virtual: s.note.Virtual}
	return nil
}

// claim fills in a note with what is done.
func (s *stream) claim(n *resume.Note) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.State == nil {
		return nil
	}
	n.Mark, n.State, n.Hash, n.HashAt = s.last.Mark, s.last.State, s.last.Hash, s.last.HashAt
	n.Image, n.Parked, n.Format, n.Virtual = s.last.Image, s.last.Parked, s.last.Format, s.last.Virtual
	return nil
}
