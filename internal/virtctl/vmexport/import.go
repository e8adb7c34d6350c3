package vmexport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	export "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/internal/virtctl/imageupload"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Import downloads one volume into another cluster, where it becomes a DataVolume: the data is streamed from the one to the other,
// and not stored here. The image is a qcow2 one, so that holes of the disk are not transferred.
func Import(ctx context.Context, c, to *kube.Client, o Options, upload imageupload.Options, out io.Writer) error {
	r := &run{Options: o, cluster: c, out: out}
	return r.within(ctx, func() error {
		e, err := r.ready(ctx)
		if err != nil {
			return err
		}
		raw, err := r.find(e, export.Raw)
		if err != nil {
			return err
		}
		from := &remote{run: r, ctx: ctx}
		defer from.close()
		if from.link, err = r.find(e, export.QCOW2); err != nil {
			return err
		}
		if err := r.open(ctx, e, &from.link); err != nil {
			return err
		}
		size, _, err := from.ask(raw.url)
		if err != nil {
			return err
		}
		image, tag, err := from.ask(from.link.url)
		if err != nil {
			return err
		}
		from.tag = tag
		room := imageupload.RoundUp(size)
		upload.Size, upload.Retries, upload.Wait, upload.Insecure = room.String(), o.Retries, o.Wait, o.Insecure
		upload.From = &client.Origin{ReaderAt: from, Name: o.Name + ".qcow2", Size: image, Mark: tag}
		return imageupload.Run(ctx, to, upload, out)
	})
}

// remote reads from the server of an export. Sequential reads share one request; a connection that breaks is made again.
type remote struct {
	*run
	ctx  context.Context // of the whole command: a ReadAt has none
	link link
	tag  string

	way  *way
	body io.ReadCloser
	at   int64 // where body is
}

// ask returns the size of a file, and its ETag.
func (f *remote) ask(address string) (int64, string, error) {
	if err := f.connect(); err != nil {
		return 0, "", err
	}
	answer, err := f.way.get(f.ctx, http.MethodHead, address, 0, "")
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	return answer.ContentLength, answer.Header.Get("ETag"), nil
}

func (f *remote) connect() error {
	if f.way != nil {
		return nil
	}
	var err error
	f.way, err = f.wayTo(f.ctx, f.link)
	return err
}

// ReadAt implements io.ReaderAt. It is for one goroutine at a time.
func (f *remote) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	var last error
	for tries := 0; done < len(p); tries++ {
		if tries > f.Retries || f.ctx.Err() != nil {
			return done, errors.Join(context.Cause(f.ctx), last)
		}
		n, err := f.read(p[done:], off+int64(done))
		done += n
		if n > 0 {
			tries = 0
		}
		if err != nil {
			last = err
			f.close()
		}
	}
	return done, nil
}

func (f *remote) read(p []byte, off int64) (int, error) {
	if f.body == nil || f.at != off {
		f.drop()
		if err := f.connect(); err != nil {
			return 0, err
		}
		answer, err := f.way.get(f.ctx, http.MethodGet, f.link.url, off, f.tag)
		if err != nil {
			return 0, err
		}
		f.body, f.at = answer.Body, off
		if off > 0 && answer.StatusCode != http.StatusPartialContent || answer.Header.Get("ETag") != f.tag {
			return 0, fmt.Errorf("the volume changed while it was read")
		}
	}
	n, err := io.ReadFull(f.body, p)
	f.at += int64(n)
	return n, err
}

func (f *remote) drop() {
	if f.body != nil {
		_ = f.body.Close() // the rest is not needed
		f.body = nil
	}
}

func (f *remote) close() {
	f.drop()
	if f.way != nil {
		f.way.close()
		f.way = nil
	}
}
