package volumeserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/archive"
	"github.com/berth-vm/berth/internal/transfer/encode"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/transfer/readahead"
	"github.com/berth-vm/berth/internal/transfer/tlsserver"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// Export serves volumes for download until ctx ends. ready is called with the address once clients can connect.
func Export(ctx context.Context, e task.Export, ready func(net.Addr)) error {
	if e.Version != task.Version {
		return fmt.Errorf("task version %d, this worker knows %d: worker and controller come from different releases", e.Version, task.Version)
	}
	handler, done, err := exportHandler(e)
	if err != nil {
		return err
	}
	defer done()
	server, err := tlsserver.ForPeople(e.TLSDir, handler)
	if err != nil {
		return err
	}
	return tlsserver.Serve(ctx, e.Listen, server, ready)
}

// exportHandler serves all volumes; done closes them.
func exportHandler(e task.Export) (h http.Handler, done func(), err error) {
	mux := http.NewServeMux()
	var open []io.Closer
	done = func() {
		for _, c := range open {
			_ = c.Close() // it was only read
		}
	}
	for _, v := range e.Volumes {
		base := "GET /volumes/" + v.Name + "/"
		if v.Content == task.Archive {
			root, err := os.OpenRoot(v.Path) // a link in it leads nowhere else
			if err != nil {
				done()
				return nil, nil, fmt.Errorf("open volume %s: %w", v.Name, err)
			}
			open = append(open, root)
			mux.HandleFunc(base+"disk.tar.gz", func(w http.ResponseWriter, r *http.Request) { serveTar(w, r, v.Path) })
			mux.Handle(base+"dir/", http.StripPrefix("/volumes/"+v.Name+"/dir/", http.FileServerFS(root.FS())))
			continue
		}
		disk, err := openVolume(v.Path)
		if err != nil {
			done()
			return nil, nil, err
		}
		open = append(open, disk.file)
		x := &exported{volume: disk}
		mux.HandleFunc(base+"disk.img", x.serveRaw)
		mux.HandleFunc(base+"disk.img.gz", x.serveGzip)
		mux.HandleFunc(base+"disk.qcow2", x.serveQCOW2)
	}
	serveManifests(mux, e)
	return tlsserver.Guarded(e.TokenDir, mux), done, nil
}

// exported is a disk that is downloaded.
type exported struct {
	*volume
	mu    sync.Mutex
	image *encode.Image // made when it is first asked for
	of    string        // the version that it is of
}

// disk returns where its bytes are and where there are any.
func (x *exported) disk() encode.Disk {
	return encode.Disk{ReaderAt: x.file, Size: x.size, Data: x.extents}
}

// head returns what is downloaded. A client that continues with an earlier download sees by the version whether it still can.
func (x *exported) head(w http.ResponseWriter, kind, name string) (version string, ok bool) {
	version, err := x.version()
	if err != nil {
		http.Error(w, "the volume cannot be read", http.StatusInternalServerError)
		return "", false
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", "attachment; filename="+name)
	w.Header().Set("ETag", strings.TrimSuffix(version, `"`)+"-"+name+`"`)
	return version, true
}

// settled aborts a download if the disk changed meanwhile, so that the client does not take it for complete.
func (x *exported) settled(version string) {
	if now, err := x.version(); err != nil || now != version {
		panic(http.ErrAbortHandler)
	}
}

func (x *exported) serveRaw(w http.ResponseWriter, r *http.Request) {
	if version, ok := x.head(w, "application/octet-stream", "disk.img"); ok {
		http.ServeContent(readahead.Response{ResponseWriter: w}, r, "", time.Time{}, x.steady(x.file, x.size, version))
	}
}

func (x *exported) serveQCOW2(w http.ResponseWriter, r *http.Request) {
	version, ok := x.head(w, "application/octet-stream", "disk.qcow2")
	if !ok {
		return
	}
	image, err := x.qcow2(r.Context(), version)
	if err != nil {
		http.Error(w, "the volume cannot be read", http.StatusInternalServerError)
		return
	}
	http.ServeContent(readahead.Response{ResponseWriter: w}, r, "", time.Time{}, x.steady(image, image.Size(), version))
}

func (x *exported) serveGzip(w http.ResponseWriter, r *http.Request) {
	version, ok := x.head(w, "application/gzip", "disk.img.gz")
	if !ok || r.Method == http.MethodHead {
		return
	}
	if err := encode.Gzip(r.Context(), w, x.disk()); err != nil {
		panic(http.ErrAbortHandler) // the client is to see that something is missing
	}
	x.settled(version)
}

// qcow2 returns the disk as an image. Which clusters it has is found out once, which for a block device means to read it: it does
// not say.
func (x *exported) qcow2(ctx context.Context, version string) (*encode.Image, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.image != nil && x.of == version {
		return x.image, nil
	}
	d := x.disk()
	if x.block {
		d.Data = x.scan
	}
	image, err := encode.QCOW2(ctx, d)
	if err == nil {
		x.image, x.of = image, version
	}
	return image, err
}

// scan finds where a device has data other than zeroes.
func (x *exported) scan(ctx context.Context, from, to int64) ([][2]int64, error) {
	var data [][2]int64
	buf := make([]byte, 1<<20)
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := x.file.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
		if err != nil && !errors.Is(err, io.EOF) || n == 0 {
			return nil, fmt.Errorf("read the device at %d: %w", at, err)
		}
		for p := buf[:n]; len(p) > 0; {
			run, zero := zeropage.Run(p, at)
			if !zero {
				data = append(data, [2]int64{at, int64(run)})
			}
			p, at = p[run:], at+int64(run)
		}
	}
	return data, nil
}

// serveTar sends a directory as a compressed tar archive.
func serveTar(w http.ResponseWriter, r *http.Request, dir string) {
	w.Header().Set(peerproto.ContentHeader, string(task.Archive))
	w.Header().Set("Content-Type", "application/gzip")
	if r.Method == http.MethodHead {
		return
	}
	if err := encode.Compress(w, func(w io.Writer) error { return archive.Pack(r.Context(), dir, w) }); err != nil {
		panic(http.ErrAbortHandler) // the client is to see that something is missing
	}
}

// steady reads what is sent, and looks before the last bytes of it whether the disk is still the same.
func (x *exported) steady(from io.ReaderAt, size int64, version string) io.ReadSeeker {
	return io.NewSectionReader(steadyReader{ReaderAt: from, size: size, look: func() bool {
		now, err := x.version()
		return err == nil && now == version
	}}, 0, size)
}

type steadyReader struct {
	io.ReaderAt
	size int64
	look func() bool
}

var errChanged = errors.New("the volume changed while it was read")

func (s steadyReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.ReaderAt.ReadAt(p, off)
	if off+int64(n) >= s.size && !s.look() {
		return 0, errChanged
	}
	return n, err
}
