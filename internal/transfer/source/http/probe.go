package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	nethttp "net/http"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/fault"
)

// answer is a body with a life of its own: it does not end with the context that asked for it.
type answer struct {
	resp   *nethttp.Response
	cancel context.CancelFunc
}

func (a *answer) close() {
	a.cancel()
	_ = a.resp.Body.Close() // abandoned on purpose
}

// probe finds out what is there by asking for the first byte. HEAD is not used: signed URLs and many servers refuse it,
// and what it says of a length is often not what GET does.
func (b *blob) probe(ctx context.Context, patience time.Duration) error {
	a, err := b.ask(ctx, patience, map[string]string{"Range": "bytes=0-0"})
	if err != nil {
		return err
	}
	switch code := a.resp.StatusCode; {
	case partial(a.resp):
		r, err := ParseContentRange(a.resp.Header.Get("Content-Range"))
		if err == nil && r.First == 0 && r.Last == 0 && r.Size > 0 && (a.resp.ContentLength < 0 || a.resp.ContentLength == 1) {
			b.found(a.resp, r.Size, true)
			discard(a.resp)
			a.cancel()
			return b.confirm(ctx, patience)
		}
	case code == nethttp.StatusOK:
		b.keep(a)
		return nil
	case code == nethttp.StatusBadRequest, code == nethttp.StatusMethodNotAllowed, code == nethttp.StatusNotImplemented,
		code == nethttp.StatusNotAcceptable, code == nethttp.StatusRequestedRangeNotSatisfiable:
		// Ranges are refused, or the blob is empty.
	default:
		err := status(b.request.Name, a.resp)
		a.close()
		return err
	}
	a.close()
	return b.probeWhole(ctx, patience)
}

// confirm sends a second request if the answer has no ETag. If versions cannot be identified and the second answer differs, the
// source is read in one piece. If the answer has a modification time, it tests whether If-Range with that time works: some servers
// then send everything although nothing changed.
func (b *blob) confirm(ctx context.Context, patience time.Duration) error {
	set := map[string]string{"Range": "bytes=0-0"}
	switch {
	case b.info.Weak == "" && !b.version.onlyTime():
		return nil
	case b.info.Weak == "":
		b.version.timed = true
		b.request.condition(b.version, set)
	}
	a, err := b.ask(ctx, patience, set)
	if err != nil {
		return err
	}
	r, err := ParseContentRange(a.resp.Header.Get("Content-Range"))
	same := err == nil && partial(a.resp) && r.Size == b.info.Size && b.version.same(b.request.version(a.resp.Header))
	if same {
		discard(a.resp) // one byte: the connection can be used again
	}
	a.close()
	switch {
	case same:
		return nil
	case b.info.Weak == "":
		b.version.timed = false
		return nil
	}
	return b.probeWhole(ctx, patience)
}

// probeWhole asks without a range: the server's ranges are refused, or not to be trusted.
func (b *blob) probeWhole(ctx context.Context, patience time.Duration) error {
	a, err := b.ask(ctx, patience, nil)
	if err != nil {
		return err
	}
	if a.resp.StatusCode != nethttp.StatusOK {
		err := status(b.request.Name, a.resp)
		a.close()
		return err
	}
	b.keep(a)
	return nil
}

// ask sends a probe whose body may outlive ctx.
func (b *blob) ask(ctx context.Context, patience time.Duration, set map[string]string) (*answer, error) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	watch := time.AfterFunc(patience, func() { cancel(errSilent) })
	resp, err := b.do(own, target{b.request.URL, true}, set)
	watch.Stop()
	release()
	if errors.Is(context.Cause(own), errSilent) {
		err = task.Errorf(task.SourceUnreachable, "%s did not answer within %s", b.request.Name, patience)
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &answer{resp: resp, cancel: func() { cancel(nil) }}, nil
}

var errSilent = errors.New("no answer")

// keep holds on to the body of a server without ranges: it may be made on the fly, and asking twice may cost twice.
func (b *blob) keep(a *answer) {
	b.found(a.resp, a.resp.ContentLength, false)
	b.first = a
}

func (b *blob) found(resp *nethttp.Response, size int64, ranged bool) {
	b.version = b.request.version(resp.Header)
	b.info = source.Info{Name: b.request.Name, Size: size, Ranged: ranged, Version: b.version.String()}
	b.info.MediaType, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if !b.request.Immutable {
		b.info.Weak = b.version.weak(answered(resp.Header))
	}
	if b.version.onlyTime() {
		b.info.Version += fmt.Sprintf(" size:%d", size) // two states within one second may at least differ in this
	}
	b.remember(resp)
}

// whole reads the whole body from a server without ranges: from the probe's answer if it was not read yet, else from a new one.
func (b *blob) whole(ctx context.Context) (io.ReadCloser, error) {
	b.mu.Lock()
	a := b.first
	b.first = nil
	b.mu.Unlock()
	if a != nil {
		stop := context.AfterFunc(ctx, a.cancel)
		body := fault.Body(b.request.Name, a.resp.Body, b.info.Size)
		return &leased{ReadCloser: body, end: func() { stop(); a.cancel() }}, nil
	}
	resp, err := b.get(ctx, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != nethttp.StatusOK {
		err = status(b.request.Name, resp)
	} else if v := b.request.version(resp.Header); b.version.contradicts(v) {
		err = fault.Changed(b.request.Name, b.version.differs(v))
	} else {
		return fault.Body(b.request.Name, resp.Body, b.info.Size), nil
	}
	_ = resp.Body.Close() // the answer is of no use
	return nil, err
}

// leased is the probe's body in the hands of a reader: it ends with the reader's context.
type leased struct {
	io.ReadCloser
	end  func()
	once sync.Once
}

func (l *leased) Close() error {
	err := l.ReadCloser.Close()
	l.once.Do(l.end)
	return err
}
