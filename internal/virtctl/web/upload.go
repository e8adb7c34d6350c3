package web

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/internal/upload/tus"
	"github.com/berth-vm/berth/internal/virtctl/imageupload"
	"github.com/berth-vm/berth/internal/virtctl/web/view"
)

// uploadRoutes: the page asks for a volume, waits until it takes an upload, and sends the file by tus. It connects only to this
// server, which forwards the bytes with a token that the cluster gave this person.
func (s *Server) uploadRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /uploads/{namespace}/{name}", s.known(s.prepare))
	mux.HandleFunc("GET /uploads/{namespace}/{name}/ready", s.known(s.ready))
	for _, method := range []string{"POST /uploads/{namespace}/{name}/files", "HEAD /uploads/{namespace}/{name}/files/{id}", "PATCH /uploads/{namespace}/{name}/files/{id}"} {
		mux.HandleFunc(method, s.known(s.forward))
	}
}

// file is the page's description of a file that was dropped.
type file struct {
	Size  int64  `json:"size"`
	Disk  string `json:"disk"` // how large the disk is to be; empty: as the image says
	Class string `json:"class"`
	Head  string `json:"head"` // the beginning and the end of the file, in base64
	Tail  string `json:"tail"`
}

// prepare makes the volume that the file goes into, if there is none.
func (s *Server) prepare(w http.ResponseWriter, r *http.Request, p *Person) {
	var f file
	if err := read(w, r, &f); err != nil {
		refuse(w, err)
		return
	}
	o := imageupload.Options{Name: r.PathValue("name"), Size: f.Disk, Class: f.Class, Image: "-"}
	if o.Size == "" {
		n, err := f.diskSize()
		if err != nil || n == 0 {
			refuse(w, errors.Join(errors.New("the image does not say how large its disk is: say it"), err))
			return
		}
		size := imageupload.RoundUp(n)
		o.Size = size.String()
	}
	err := imageupload.Ensure(r.Context(), p.Client.In(r.PathValue("namespace")), o)
	answer(w, "The volume is asked for.", err)
}

// diskSize reads the ends of a file as the whole.
func (f file) diskSize() (int64, error) {
	head, err := base64.StdEncoding.DecodeString(f.Head)
	if err != nil {
		return 0, fmt.Errorf("the beginning of the file cannot be read: %w", err)
	}
	tail, err := base64.StdEncoding.DecodeString(f.Tail)
	if err != nil {
		return 0, fmt.Errorf("the end of the file cannot be read: %w", err)
	}
	if f.Size <= 0 || int64(len(head)) < min(f.Size, format.HeadSize) || int64(len(tail)) < min(f.Size, format.TailSize) ||
		int64(len(head)) > f.Size || int64(len(tail)) > f.Size {
		return 0, errors.New("the ends of the file are not what was asked for")
	}
	return imageupload.DiskSize(ends{head: head, tail: tail, size: f.Size}, f.Size)
}

// ends are the beginning and the end of a file; what is between them cannot be read.
type ends struct {
	head, tail []byte
	size       int64
}

var errBetween = errors.New("only the ends of the file are here")

// ReadAt implements io.ReaderAt.
func (e ends) ReadAt(p []byte, at int64) (int, error) {
	from, tail := e.head, e.size-int64(len(e.tail))
	switch {
	case at < 0 || at > e.size:
		return 0, io.EOF
	case at+int64(len(p)) > int64(len(e.head)) && at >= tail:
		from, at = e.tail, at-tail
	case at >= int64(len(e.head)):
		return 0, errBetween
	}
	n := copy(p, from[at:])
	if n < len(p) {
		if e.size > int64(len(e.head)) && &from[0] == &e.head[0] {
			return n, errBetween
		}
		return n, io.EOF
	}
	return n, nil
}

// readyFor is how long a request of the page may wait before the page repeats it.
const readyFor = 25 * time.Second

// ready answers as soon as the volume takes an upload, or needs to be told where to be.
func (s *Server) ready(w http.ResponseWriter, r *http.Request, p *Person) {
	changes, end := p.Store.Watch()
	defer end()
	timeout := time.NewTimer(readyFor)
	defer timeout.Stop()
	for {
		state := readiness(p.Store.Objects(), r.PathValue("namespace"), r.PathValue("name"))
		if state.State != "coming" {
			answerJSON(w, state)
			return
		}
		select {
		case <-changes:
		case <-timeout.C:
			answerJSON(w, state)
			return
		case <-r.Context().Done():
			return
		}
	}
}

type uploadState struct {
	State  string  `json:"state"` // ready, held, coming, done or failed
	Why    string  `json:"why,omitempty"`
	Places []place `json:"places,omitempty"`
}

func readiness(o *view.Objects, namespace, name string) uploadState {
	var volume *cdiv1.DataVolume
	var claim *corev1.PersistentVolumeClaim
	for _, v := range o.Volumes {
		if v.Namespace == namespace && v.Name == name {
			volume = v
		}
	}
	for _, c := range o.Claims {
		if c.Namespace == namespace && c.Name == name {
			claim = c
		}
	}
	if volume == nil {
		return uploadState{State: "coming"}
	}
	takes, waits, why, err := imageupload.Stage(volume, claim)
	switch {
	case volume.Status.Phase == cdiv1.Succeeded:
		return uploadState{State: "done"}
	case err != nil:
		return uploadState{State: "failed", Why: err.Error()}
	case takes:
		return uploadState{State: "ready"}
	case waits:
		return uploadState{State: "held", Why: why, Places: places(o.NodeNames(), view.Disk{Held: true})}
	}
	return uploadState{State: "coming", Why: why}
}

// forward hands a request of the tus protocol to the upload proxy, and its answer back.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, p *Person) {
	c, ctx := p.Client.In(r.PathValue("namespace")), r.Context()
	address, ca, err := imageupload.Proxy(ctx, c, s.UploadProxy)
	var token string
	if err == nil {
		token, err = imageupload.Token(ctx, c, r.PathValue("name"))
	}
	var to *url.URL
	if err == nil {
		to, err = url.Parse(address)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	transport, err := client.Transport(client.Options{CA: []byte(ca)})
	if err != nil {
		refuse(w, err)
		return
	}
	defer transport.CloseIdleConnections()
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a file takes as long as it takes
	base := "/uploads/" + url.PathEscape(c.Namespace) + "/" + url.PathEscape(r.PathValue("name")) + "/files"
	out := &httputil.ReverseProxy{
		Transport: transport, ErrorLog: nil,
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL = &url.URL{Scheme: to.Scheme, Host: to.Host, Path: path.Join("/", to.Path, tus.Path, r.PathValue("id"))}
			out.Out.Host = to.Host
			for name := range out.Out.Header { // the proxy is told what tus says, and nothing about this person but the token
				if name != "Content-Type" && !strings.HasPrefix(name, "Upload-") && name != tus.Resumable {
					delete(out.Out.Header, name)
				}
			}
			out.Out.Header.Set("Authorization", "Bearer "+token)
		},
		ModifyResponse: func(answer *http.Response) error {
			for name := range answer.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					delete(answer.Header, name)
				}
			}
			if id, ok := strings.CutPrefix(answer.Header.Get("Location"), tus.Path+"/"); ok {
				answer.Header.Set("Location", base+"/"+id)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("the upload proxy at %s cannot be reached: %v", to.Host, err), http.StatusBadGateway)
		},
	}
	out.ServeHTTP(w, r)
}
