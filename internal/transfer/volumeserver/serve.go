// Package volumeserver serves volumes that are only read: to the worker of another node that clones one (Serve, in the protocol of package
// peerproto), and for download in the formats of package encode (Export).
//
// It does not know clones or exports as objects of a cluster, nor when a volume may be served: the controller decides that.
package volumeserver

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/filetree"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/transfer/progress"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/tlsserver"
	"github.com/berth-vm/berth/internal/transfer/volumefiles"
)

// Serve serves a volume to a peer, in the protocol of package peerproto, until ctx ends. ready is called with the address once
// peers can connect.
func Serve(ctx context.Context, s task.Serve, ready func(net.Addr)) error {
	if s.Version != task.Version {
		return fmt.Errorf("task version %d, this worker knows %d: worker and controller come from different releases",
			s.Version, task.Version)
	}
	config, err := mutualTLS(s.TLSDir)
	if err != nil {
		return err
	}
	handler, done, err := volumeHandler(s)
	if err != nil {
		return err
	}
	defer done()
	return tlsserver.Serve(ctx, s.Listen, &http.Server{Handler: handler, TLSConfig: config, ReadHeaderTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}, ready) // HTTP/1.1: each range has its own flow control
}

// mutualTLS returns a configuration that accepts only certificates signed by dir's ca.crt.
func mutualTLS(dir string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read this worker's certificate: %w", err)
	}
	pem, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the certificate peers are checked against: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", filepath.Join(dir, "ca.crt"))
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert}, nil
}

// volumeHandler serves one volume; done closes it.
func volumeHandler(s task.Serve) (h http.Handler, done func(), err error) {
	mux := http.NewServeMux()
	path := s.Path
	if s.Content == task.Volume {
		path = filepath.Join(s.Path, task.DiskFile)
		has, err := volumefiles.HasDisk(path)
		if err != nil {
			return nil, nil, err
		}
		mux.HandleFunc("GET "+peerproto.FilesPath, func(w http.ResponseWriter, r *http.Request) { serveFiles(w, r, s.Path, has) })
		if !has {
			mux.HandleFunc("GET "+peerproto.VolumePath, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(peerproto.ContentHeader, peerproto.OnlyFiles)
			})
			return mux, func() {}, nil
		}
	}
	v, err := openVolume(path)
	if err != nil {
		return nil, nil, err
	}
	mux.HandleFunc("GET "+peerproto.VolumePath, v.serve)
	mux.HandleFunc("GET "+peerproto.ExtentsPath, v.serveExtents)
	return mux, func() { _ = v.file.Close() }, nil
}

// serveFiles sends the files of a volume but for its disk. A client sees that they are whole by the stream's own end, and why they are not by
// a trailer.
func serveFiles(w http.ResponseWriter, r *http.Request, dir string, hasDisk bool) {
	from := filetree.Source{Dir: dir}
	if hasDisk {
		from.Without = task.DiskFile
	}
	w.Header().Set("Trailer", peerproto.TroubleTrailer)
	w.Header().Set("Content-Type", peerproto.FilesType)
	if r.Method == http.MethodHead {
		return
	}
	left, err := filetree.Write(r.Context(), from, w)
	var trouble peerproto.Trouble
	switch {
	case err != nil:
		trouble = peerproto.Trouble{Reason: progress.ReasonOf(r.Context(), err), Detail: progress.OneLine(err)}
	case len(left) > 0:
		trouble.Detail = volumefiles.LeftOut(left)
	default:
		return
	}
	if b, err := json.Marshal(trouble); err == nil { // plain data
		w.Header().Set(peerproto.TroubleTrailer, string(b))
	}
}

// volume is a disk that is served.
type volume struct {
	file  *os.File
	size  int64
	block bool
	boot  string // of this server, the version of a block device
}

func openVolume(path string) (*volume, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open the volume to be cloned: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && info.Mode()&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice {
		err = fmt.Errorf("%s is neither a file nor a block device", path)
	}
	var size int64
	if err == nil {
		size, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("look at the volume to be cloned: %w", err)
	}
	return &volume{file: f, size: size, block: !info.Mode().IsRegular(), boot: rand.Text()}, nil
}

// version returns the version of the volume's bytes. A device cannot prove that it did not change.
func (v *volume) version() (string, error) {
	if v.block {
		return strconv.Quote("device-" + v.boot), nil
	}
	info, err := v.file.Stat()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%q", fmt.Sprintf("file-%d-%d-%x", info.Size(), info.ModTime().UnixNano(), sink.FileID(info))), nil
}

// serve answers for the disk's bytes.
func (v *volume) serve(w http.ResponseWriter, r *http.Request) {
	version, err := v.version()
	if err != nil {
		http.Error(w, "the volume cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set(peerproto.ContentHeader, string(task.Disk))
	w.Header().Set("ETag", version)
	if r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), peerproto.FramesType) {
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(v.file, 0, v.size))
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != version {
		http.Error(w, "the volume changed", http.StatusPreconditionFailed)
		return
	}
	from, to, status := v.byteRange(r.Header.Get("Range"))
	if status == http.StatusRequestedRangeNotSatisfiable {
		http.Error(w, "no such range", status)
		return
	}
	w.Header().Set("Content-Type", peerproto.FramesType)
	if status == http.StatusPartialContent {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, v.size))
	}
	w.WriteHeader(status)
	if err := v.frames(r.Context(), w, from, to); err != nil {
		panic(http.ErrAbortHandler) // the peer is to see that something is missing
	}
	if after, err := v.version(); err != nil || after != version {
		panic(http.ErrAbortHandler)
	}
}

// byteRange reads a Range header of one range with both ends; the client never sends another.
func (v *volume) byteRange(header string) (from, to int64, status int) {
	if header == "" {
		return 0, v.size, http.StatusOK
	}
	first, last, found := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	from, err1 := strconv.ParseInt(first, 10, 64)
	to, err2 := v.size-1, error(nil)
	if last != "" {
		to, err2 = strconv.ParseInt(last, 10, 64)
	}
	if !found || err1 != nil || err2 != nil || from < 0 || from > to || from >= v.size {
		return 0, 0, http.StatusRequestedRangeNotSatisfiable
	}
	return from, min(to, v.size-1) + 1, http.StatusPartialContent
}

// frames sends [from, to). Holes are not even read.
func (v *volume) frames(ctx context.Context, w io.Writer, from, to int64) error {
	b := bufio.NewWriterSize(w, 64<<10)
	f, err := peerproto.NewWriter(b)
	if err != nil {
		return err
	}
	buf := make([]byte, min(peerproto.MaxFrame, to-from))
	for at := from; at < to; {
		data, err := v.extents(ctx, at, min(to, at+frameWindow))
		if err != nil {
			return err
		}
		for _, d := range append(data, [2]int64{min(to, at+frameWindow), 0}) {
			if err := f.Zeroes(d[0] - at); err != nil {
				return err
			}
			at = d[0]
			for end := d[0] + d[1]; at < end; {
				p := buf[:min(int64(len(buf)), end-at)]
				if _, err := v.file.ReadAt(p, at); err != nil {
					return err
				}
				if _, err := f.Write(p); err != nil {
					return err
				}
				at += int64(len(p))
			}
		}
	}
	return b.Flush()
}

// frameWindow bounds the list of extents that is in memory while frames are made.
const frameWindow = 64 << 20

// extents returns where in [from, to) there may be data.
func (v *volume) extents(ctx context.Context, from, to int64) ([][2]int64, error) {
	if v.block {
		return [][2]int64{{from, to - from}}, nil
	}
	return sink.DataIn(ctx, v.file, from, to)
}

// serveExtents answers where there may be data.
func (v *volume) serveExtents(w http.ResponseWriter, r *http.Request) {
	from, err1 := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64)
	to, err2 := strconv.ParseInt(r.URL.Query().Get("to"), 10, 64)
	switch {
	case v.block:
		http.Error(w, "a block device does not tell", http.StatusNotFound)
		return
	case err1 != nil || err2 != nil || from < 0 || to < from || to > v.size:
		http.Error(w, "no such range", http.StatusBadRequest)
		return
	}
	data, err := v.extents(r.Context(), from, to)
	if err != nil {
		http.Error(w, "the volume cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(peerproto.Extents(data)) // the client is gone
}
