package http

import (
	"context"
	"fmt"
	"io"
	nethttp "net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source/fault"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// target is the address of a request, and whether the task's credentials for its own host may be sent there.
type target struct {
	url *url.URL
	own bool
}

// do sends a GET, to where redirects led before or to the URL itself, and returns whatever answer there is.
func (b *blob) do(ctx context.Context, to target, set map[string]string) (*nethttp.Response, error) {
	req, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodGet, to.url.String(), nil)
	if err != nil {
		return nil, task.Errorf(task.BadTask, "request %s: %w", b.request.Name, err)
	}
	if to.own {
		for k, v := range b.request.Header {
			req.Header[k] = v
		}
		if host := b.request.Header.Get("Host"); host != "" {
			req.Host = host
			req.Header.Del("Host")
		}
	}
	if req.Header.Get("Accept-Encoding") == "" {
		req.Header.Set("Accept-Encoding", "identity")
	}
	for k, v := range set {
		req.Header.Set(k, v)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, fault.Wire(b.request.Name, err)
	}
	return resp, nil
}

// span reads [off, off+n) and insists on exactly that.
func (b *blob) span(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	set := map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", off, off+n-1)}
	b.request.condition(b.version, set)
	resp, err := b.get(ctx, set)
	if err != nil {
		return nil, err
	}
	if err := b.check(resp, off, n); err != nil {
		_ = resp.Body.Close() // the answer is of no use
		return nil, err
	}
	return fault.Body(b.request.Name, resp.Body, n), nil
}

// get asks where redirects led last time, and the URL itself if that place does not have it any more: signed
// redirects expire, mirrors go away.
func (b *blob) get(ctx context.Context, set map[string]string) (*nethttp.Response, error) {
	b.mu.Lock()
	direct := b.direct
	b.mu.Unlock()
	if direct != nil {
		resp, err := b.do(ctx, *direct, set)
		if err == nil && resp.StatusCode < 300 || ctx.Err() != nil {
			return resp, err
		}
		if err == nil {
			discard(resp)
		}
	}
	resp, err := b.do(ctx, target{b.request.URL, true}, set)
	if err == nil && resp.StatusCode < 300 {
		b.remember(resp)
	}
	return resp, err
}

// remember keeps where redirects led.
func (b *blob) remember(resp *nethttp.Response) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.direct = nil
	if u := resp.Request.URL; u.String() != b.request.URL.String() {
		b.direct = &target{u, b.request.own(resp.Request)}
	}
}

// check returns what is wrong with the answer to a range.
func (b *blob) check(resp *nethttp.Response, off, n int64) error {
	name := b.request.Name
	if !partial(resp) {
		return b.refused(resp, off, n)
	}
	if v := b.request.version(resp.Header); b.version.contradicts(v) {
		return fault.Changed(name, b.version.differs(v))
	}
	got, err := ParseContentRange(resp.Header.Get("Content-Range"))
	if err != nil {
		return task.Errorf(task.SourceUnavailable, "%s: %w: the server's support for ranges is broken", name, err)
	}
	if got.Size >= 0 && got.Size != b.info.Size {
		return fault.Changed(name, fmt.Sprintf("its size was %d bytes and is now %d", b.info.Size, got.Size))
	}
	if got.First != off || got.Last != off+n-1 || resp.ContentLength >= 0 && resp.ContentLength != n {
		return task.Errorf(task.SourceUnavailable, "%s was asked for bytes %d-%d and sent %d bytes labelled %d-%d: the "+
			"server's support for ranges is broken", name, off, off+n-1, resp.ContentLength, got.First, got.Last)
	}
	return nil
}

// partial holds for the answer to a range. Some object stores send the range, and label it, under 200; taking that for
// the whole blob would be the worse mistake.
func partial(resp *nethttp.Response) bool {
	return resp.StatusCode == nethttp.StatusPartialContent ||
		resp.StatusCode == nethttp.StatusOK && resp.Header.Get("Content-Range") != ""
}

// refused returns why there is no range in the answer to one.
func (b *blob) refused(resp *nethttp.Response, off, n int64) error {
	name := b.request.Name
	if resp.StatusCode != nethttp.StatusOK && resp.StatusCode != nethttp.StatusRequestedRangeNotSatisfiable {
		return status(name, resp)
	}
	if v := b.request.version(resp.Header); b.version.contradicts(v) {
		return fault.Changed(name, b.version.differs(v))
	}
	if size := whole(resp); size >= 0 && size != b.info.Size {
		return fault.Changed(name, fmt.Sprintf("its size was %d bytes and is now %d", b.info.Size, size))
	}
	return task.Errorf(task.SourceUnavailable, "%s gave ranges before and now answered %d to bytes %d-%d: the server's "+
		"support for ranges is broken", name, resp.StatusCode, off, off+n-1)
}

// whole returns the size of the whole blob as an answer to a range that is not one says it; -1 if it does not.
func whole(resp *nethttp.Response) int64 {
	if resp.StatusCode == nethttp.StatusOK {
		return resp.ContentLength
	}
	if r, err := ParseContentRange(resp.Header.Get("Content-Range")); err == nil {
		return r.Size
	}
	return -1
}

// status returns the error for an answer, with the delay that the server asks for.
func status(name string, resp *nethttp.Response) error {
	err := fault.Status(name, resp.StatusCode)
	if secs, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && secs > 0 && secs < 3600 {
		return &retry.After{Err: err, Wait: time.Duration(secs) * time.Second}
	}
	return err
}

// discard reads what little an unwanted answer holds, so that its connection can be used again.
func discard(resp *nethttp.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 16<<10) // more than an error page is not worth waiting for
	_ = resp.Body.Close()
}
