// Package proxy is the entrance for uploads: it checks the token of a request, finds the worker that waits for that claim's data,
// and hands the body over as it comes, so that its memory does not grow with what is uploaded. The client gets the worker's
// answer.
//
// It keeps nothing: any replica can continue with an upload that another began. It does not know what an image is.
package proxy

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/upload/minrate"
	"github.com/berth-vm/berth/internal/upload/tus"
)

// Options has the dependencies of a proxy.
type Options struct {
	// Find finds the worker for a claim. Its errors are the ones below, or say that the cluster could not be asked.
	Find func(ctx context.Context, c token.Claim) (Worker, error)
	// Keys are the keys that tokens may be signed with at the moment.
	Keys func() []ed25519.PublicKey
	// Dial makes connections to workers.
	Dial *Dialer
	// Tell is called when an upload failed, for the claim's owner. It may be nil.
	Tell func(w Worker, message string)
	// Places is how many uploads there may be at once; PerNamespace and PerClaim are how many requests of one namespace and for
	// one claim there may be, also while they wait. 0 is no limit of its own.
	Places, PerNamespace, PerClaim int
	// Patience is how long to wait for a worker that is not ready.
	Patience time.Duration
	Pace     minrate.Limit
	// Meter counts uploads; nil counts nothing.
	Meter *Meter
	Log   *slog.Logger
}

// The defaults: a hundred uploads at once are more than any node takes, and at less than half a MiB each they leave half of the
// 128 MiB that the proxy has; clients expect ten seconds. One namespace may have half of the places, so that another has the rest.
// A claim's data comes in one request at a time; a client that continues with an upload may not have noticed that its last request
// is still there, and looks how far it came.
const (
	DefaultPlaces   = 128
	DefaultPerClaim = 4
	DefaultPatience = 10 * time.Second
)

// Why there is no worker.
var (
	ErrNotReady = errors.New("the upload worker is not ready")
	ErrMissing  = errors.New("the claim does not exist")
	ErrOther    = errors.New("the token is for an earlier claim of this name")
	ErrFinished = errors.New("the claim has its data already")
)

// Finished is ErrFinished with the id of the upload that the data is from; empty: it is not known.
type Finished struct{ Upload string }

func (*Finished) Error() string { return ErrFinished.Error() }

// Unwrap is ErrFinished.
func (*Finished) Unwrap() error { return ErrFinished }

// Worker is the address of a claim's worker.
type Worker struct {
	Claim   token.Claim
	Address string // host:port
	Name    string // that its certificate is for
	Owner   Owner
}

// Owner is the object that gets events about an upload.
type Owner struct{ APIVersion, Kind, Name, UID string }

type proxy struct {
	Options
	places *places
	routes http.Handler
}

// New returns the proxy as a handler.
func New(o Options) http.Handler {
	p := &proxy{Options: o, places: newPlaces(o)}
	if o.Meter != nil {
		o.Meter.places.Set(float64(o.Places))
	}
	mux := http.NewServeMux()
	for _, version := range []string{"/v1beta1", "/v1alpha1"} {
		for _, path := range []string{"/upload", "/upload-async", "/upload-form", "/upload-form-async"} {
			mux.HandleFunc("POST "+version+path, p.upload)
			mux.HandleFunc("PUT "+version+path, p.upload)
			mux.HandleFunc("HEAD "+version+path, discover)
		}
	}
	mux.HandleFunc("OPTIONS "+tus.Path, options)
	mux.HandleFunc("POST "+tus.Path, p.upload)
	mux.HandleFunc("HEAD "+tus.Path+"/{id}", p.resume)
	mux.HandleFunc("PATCH "+tus.Path+"/{id}", p.resume)
	mux.HandleFunc("GET /healthz", discover)
	p.routes = mux
	return p
}

// ServeHTTP lets browsers in from anywhere: what counts is the token, which no browser sends by itself.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "Location, Upload-Offset, Upload-Length, Tus-Resumable, Tus-Version")
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", "POST, PUT, HEAD, PATCH, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Upload-Offset, Upload-Length, Upload-Metadata, Tus-Resumable")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	answer := &answered{ResponseWriter: w}
	p.routes.ServeHTTP(answer, r)
	p.Meter.answered(cmp.Or(answer.code, http.StatusOK))
}

// answered remembers with which code a request was answered.
type answered struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (a *answered) WriteHeader(code int) {
	a.code = cmp.Or(a.code, code)
	a.ResponseWriter.WriteHeader(code)
}

// Unwrap lets deadlines be set, see http.ResponseController.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// discover says that an endpoint is there, which is how clients choose one.
func discover(http.ResponseWriter, *http.Request) {}

func options(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set(tus.Resumable, tus.Version)
	h.Set("Tus-Version", tus.Version)
	h.Set("Tus-Extension", tus.Extensions)
	w.WriteHeader(http.StatusNoContent)
}

// upload takes a whole image, or makes a tus upload.
func (p *proxy) upload(w http.ResponseWriter, r *http.Request) {
	if claim, ok := p.allowed(w, r); ok {
		p.pass(w, r, claim, r.URL.Path)
	}
}

// resume continues with a tus upload. Its id begins with the claim it goes to, and that must be the token's.
func (p *proxy) resume(w http.ResponseWriter, r *http.Request) {
	claim, ok := p.allowed(w, r)
	if !ok {
		return
	}
	uid, id, _ := strings.Cut(r.PathValue("id"), idSeparator)
	if uid != claim.UID {
		http.Error(w, fmt.Sprintf("the token is for PVC %s/%s, the upload is not", claim.Namespace, claim.Name), http.StatusForbidden)
		return
	}
	p.pass(w, r, claim, tus.Path+"/"+id)
}

// idSeparator is between the claim's UID and the worker's own id of an upload.
const idSeparator = "."

// allowed checks the token.
func (p *proxy) allowed(w http.ResponseWriter, r *http.Request) (token.Claim, bool) {
	proof, ok := bearer(r.Header.Get("Authorization"))
	if !ok {
		http.Error(w, "send the token of an UploadTokenRequest as Authorization: Bearer TOKEN", http.StatusBadRequest)
		return token.Claim{}, false
	}
	claim, err := token.VerifyUpload(p.Keys(), proof, time.Now())
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return token.Claim{}, false
	}
	return claim, true
}

func bearer(header string) (string, bool) {
	scheme, proof, _ := strings.Cut(strings.TrimSpace(header), " ")
	proof = strings.TrimSpace(proof)
	return proof, strings.EqualFold(scheme, "Bearer") && proof != ""
}

// pass finds the worker and hands the request over.
func (p *proxy) pass(w http.ResponseWriter, r *http.Request, c token.Claim, path string) {
	ready := sync.OnceFunc(p.Meter.wait())
	defer ready()
	leave, err := p.places.enter(c)
	if err != nil {
		p.refuse(w, c, err)
		return
	}
	defer leave()
	worker, err := p.await(r.Context(), c)
	if id, is := finished(err, path); is {
		tus.AnswerComplete(w, r, id)
		return
	}
	if err != nil {
		p.refuse(w, c, err)
		return
	}
	back, err := p.places.take(r.Context(), p.Patience)
	if err != nil {
		p.refuse(w, c, err)
		return
	}
	defer back()
	ready()
	if r.ContentLength != 0 {
		defer p.Meter.send()()
		r.Body = minrate.Body(w, r, p.Pace)
	}
	p.forward(w, r, worker, path)
}

// finished: the claim has its data from the very upload that a request continues with. Its sender did not get the last answer,
// and the worker is gone. Any other upload is refused: the claim has other data.
func finished(err error, path string) (tus.ID, bool) {
	var done *Finished
	if !errors.As(err, &done) || done.Upload == "" || path != tus.Path+"/"+done.Upload {
		return tus.ID{}, false
	}
	id, err := tus.ParseID(done.Upload)
	return id, err == nil
}

// refuse says why there is no worker; the words are the ones clients know.
func (p *proxy) refuse(w http.ResponseWriter, c token.Claim, err error) {
	switch {
	case errors.Is(err, ErrFinished):
		http.Error(w, fmt.Sprintf("rejecting Upload Request for PVC %s that already finished uploading", c.Name), http.StatusConflict)
	case errors.Is(err, ErrOther):
		http.Error(w, fmt.Sprintf("PVC %s/%s: %v", c.Namespace, c.Name, err), http.StatusForbidden)
	case errors.Is(err, ErrMissing):
		again(w, fmt.Sprintf("rejecting Upload Request for PVC %s that doesn't exist", c.Name))
	case errors.As(err, new(fullError)):
		again(w, err.Error())
	case errors.Is(err, ErrNotReady):
		again(w, fmt.Sprintf("PVC %s is not ready for an upload: %v", c.Name, err))
	default:
		p.Log.Error("find the worker", "namespace", c.Namespace, "claim", c.Name, "error", err)
		again(w, "the cluster could not be asked for the upload worker")
	}
}

// again refuses for now.
func again(w http.ResponseWriter, text string) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, text, http.StatusServiceUnavailable)
}

// askEvery is how often a worker that is not ready is looked up again.
const askEvery = 500 * time.Millisecond

// await finds the worker, and waits a moment for one that is just being started.
func (p *proxy) await(ctx context.Context, c token.Claim) (Worker, error) {
	timeout := time.NewTimer(p.Patience)
	defer timeout.Stop()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		w, err := p.Find(ctx, c)
		if err == nil || !errors.Is(err, ErrNotReady) {
			return w, err
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			return Worker{}, err
		case <-ctx.Done():
			return Worker{}, err
		}
	}
}
