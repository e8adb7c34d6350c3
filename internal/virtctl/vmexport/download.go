package vmexport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	export "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/virtctl/bar"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Download downloads one volume. It can be repeated after any failure, and continues from where the file is if the format allows
// that.
func Download(ctx context.Context, c *kube.Client, o Options, standard, out io.Writer) error {
	r := &run{Options: o, cluster: c, out: out}
	return r.within(ctx, func() error {
		to, err := newTarget(o.Output, standard)
		if err != nil {
			return err
		}
		err = r.download(ctx, to)
		if err = errors.Join(err, to.end(err == nil)); err != nil {
			return err
		}
		r.say("Download finished succesfully") //nolint:misspell // as upstream spells it
		return nil
	})
}

// formats returns those that the user would take.
func (r *run) formats() []export.Format {
	if r.Format == "" {
		return preferred
	}
	if r.Format == export.Gzip {
		return []export.Format{export.Gzip, export.TarGzip}
	}
	return []export.Format{r.Format}
}

// pause returns the wait after the n-th consecutive attempt that brought no data.
func pause(n int) time.Duration { return min(time.Second<<min(n, 5), 30*time.Second) }

// download tries until all data was received, or no more comes.
func (r *run) download(ctx context.Context, to *target) error {
	for idle := 0; ; idle++ {
		before := to.at
		err := r.try(ctx, to)
		var no *refused
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, errors.As(err, &no) && no.code < http.StatusInternalServerError, errors.Is(err, errTarget), errors.Is(err, errLate):
			return err
		case to.at > before:
			idle = -1
			continue
		case idle >= r.Retries:
			return fmt.Errorf("retry count reached, exiting unsuccesfully: %w", err) //nolint:misspell // as upstream spells it
		}
		r.say("%v; trying again in %s", err, pause(idle))
		timer := time.NewTimer(pause(idle))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// try continues with the download once.
func (r *run) try(ctx context.Context, to *target) error {
	e, err := r.ready(ctx)
	if err != nil {
		return err
	}
	l, err := r.find(e, r.formats()...)
	if err == nil {
		err = r.open(ctx, e, &l)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errTarget, err)
	}
	w, err := r.wayTo(ctx, l)
	if err != nil {
		return err
	}
	defer w.close()
	answer, err := w.get(ctx, http.MethodGet, l.url, to.at, to.tag)
	if err != nil {
		return err
	}
	defer answer.Body.Close() // it was read, or is not needed any more
	if err := to.begin(answer, l.format); err != nil {
		return err
	}
	line, total := bar.Count(r.out), int64(-1)
	if answer.ContentLength >= 0 {
		line, total = bar.Bytes(r.out), to.at+answer.ContentLength
	}
	err = to.copy(answer.Body, func(at int64) { line.Set(at, total) })
	line.End()
	if err == nil && total >= 0 && to.at != total {
		err = io.ErrUnexpectedEOF
	}
	return err
}
