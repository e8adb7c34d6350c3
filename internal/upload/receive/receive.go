// Package receive is a worker that waits for its bytes: an HTTP server that takes one image, by POST, PUT, a form or the
// tus protocol, and streams it straight into the target as it comes. What the sender did wrong it tells the sender, and
// waits for the next try; what the target did wrong ends it.
//
// It does not know Kubernetes, and of who may send it knows a certificate or a token, not a person.
package receive

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/upload/minrate"
	"github.com/berth-vm/berth/internal/upload/tus"
)

// Server takes one upload.
type Server struct {
	// Every is how often the progress is noted at the target.
	Every time.Duration
	// Ready is called with the address once clients can connect. It may be nil.
	Ready func(net.Addr)

	task  task.Task
	carry func(task.Task) carrier
	pace  minrate.Limit
	ctx   context.Context // of all transfers; ends with Run's
	ended chan task.Report

	turn sync.Mutex // held by the one request that sends

	mu       sync.Mutex // guards what follows
	session  *session   // the tus upload under way, if any
	progress func() task.Progress
	trouble  string
	done     *task.Report // the disk is complete, or the target failed
}

// carrier brings the bytes of a blob to the target: a transfer.Transfer, which in tests may take its time.
type carrier interface {
	RunFrom(ctx context.Context, blob source.Blob) task.Report
	Progress() task.Progress
}

// New makes a server for t, whose source is an upload. It does nothing before Run.
func New(t task.Task) *Server {
	s := &Server{Every: transfer.DefaultEvery, task: t, pace: minrate.Default, ended: make(chan task.Report, 1)}
	s.carry = func(t task.Task) carrier {
		work := transfer.New(t)
		work.Every = s.Every
		return work
	}
	return s
}

// Progress may be called at any time, from any goroutine.
func (s *Server) Progress() task.Progress {
	s.mu.Lock()
	progress, trouble := s.progress, s.trouble
	s.mu.Unlock()
	if progress == nil {
		return task.Progress{Version: task.Version, Stage: task.Waiting, Trouble: trouble}
	}
	return progress()
}

// leave is how long the last answer may take to reach its client.
const leave = 10 * time.Second

// Run serves until the disk is complete, the target fails or ctx ends. It must be called only once.
func (s *Server) Run(ctx context.Context) task.Report {
	up := s.task.Source.Upload
	refused := task.Report{Version: task.Version, Outcome: task.Fatal, Reason: task.BadTask}
	if up == nil {
		refused.Detail = "the task names no upload"
		return refused
	}
	config, err := certificates(*up)
	if err != nil {
		refused.Detail = err.Error()
		return refused
	}
	var l net.Listener
	if l, err = net.Listen("tcp", up.Listen); err != nil {
		refused.Outcome, refused.Reason, refused.Detail = task.Retry, task.TargetBusy, fmt.Sprintf("wait for an upload: %v", err)
		return refused
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	s.ctx = running
	server := &http.Server{Handler: s.handler(), TLSConfig: config, ReadHeaderTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	served := make(chan error, 1)
	go func() {
		if config == nil {
			served <- server.Serve(l)
			return
		}
		served <- server.ServeTLS(l, "", "")
	}()
	if s.Ready != nil {
		s.Ready(l.Addr())
	}
	report := s.wait(ctx, served)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), leave)
	defer cancel()
	if server.Shutdown(ending) != nil {
		_ = server.Close() // a client that did not read the answer by now never will
	}
	return report
}

// wait waits until the transfer has ended, and returns its report.
func (s *Server) wait(ctx context.Context, served <-chan error) task.Report {
	interrupted := task.Report{Version: task.Version, Outcome: task.Retry, Reason: task.Interrupted}
	select {
	case r := <-s.ended:
		return r
	case err := <-served:
		interrupted.Detail = fmt.Sprintf("serve the upload: %v", err)
		return interrupted
	case <-ctx.Done():
	}
	s.mu.Lock()
	under := s.session
	s.mu.Unlock()
	if under != nil {
		<-under.done // its checkpoint is kept
	}
	s.turn.Lock() // a plain upload sees the end of ctx too
	defer s.turn.Unlock()
	select {
	case r := <-s.ended: // it was complete just before
		return r
	default:
	}
	interrupted.Detail = "told to stop; what was done so far is kept"
	return interrupted
}

// finish handles the result of a transfer: it ends the worker, or keeps the error to be reported while the next attempt is waited for.
func (s *Server) finish(r task.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session, s.progress = nil, nil
	if mayTryAgain(r.Reason) {
		s.trouble = r.Detail
		return
	}
	if r.Reason == task.Interrupted && s.ctx.Err() == nil {
		return // replaced by another upload
	}
	if s.done == nil && r.Reason != task.Interrupted {
		s.done = &r
		s.ended <- r
	}
}

// mayTryAgain reports whether what went wrong is the sender's doing, and the target is as it was before.
func mayTryAgain(r task.Reason) bool {
	switch r {
	case task.BadImage, task.UnsafeImage, task.UnsupportedImage, task.ChecksumMismatch, task.DoesNotFit,
		task.SourceTruncated, task.SourceUnreachable, task.SourceChanged:
		return true
	case task.Completed, task.SourceNotFound, task.SourceUnavailable, task.SourceDenied, task.SourceUntrusted,
		task.TargetBusy, task.TargetFailed, task.Interrupted, task.BadTask:
	}
	return false
}

// begin makes a transfer the one whose progress is shown.
func (s *Server) begin() carrier {
	work := s.carry(s.task)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress, s.trouble = work.Progress, ""
	return work
}

// over reports whether no upload can begin any more, and answers so.
func (s *Server) over(w http.ResponseWriter) bool {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	if done == nil {
		return false
	}
	if done.Outcome == task.Done {
		http.Error(w, "the upload is complete: nothing more can be uploaded to this volume", http.StatusConflict)
	} else {
		http.Error(w, done.Detail, http.StatusInternalServerError)
	}
	return true
}

// status returns how a report reads over HTTP. The first words of a bad image are the ones clients know.
func status(r task.Report) (code int, text string) {
	switch {
	case r.Outcome == task.Done:
		return http.StatusOK, ""
	case mayTryAgain(r.Reason):
		return http.StatusBadRequest, "Saving stream failed: " + r.Detail
	case r.Reason == task.Interrupted:
		return http.StatusServiceUnavailable, "the worker was stopped; send it again"
	}
	return http.StatusInternalServerError, "Saving stream failed: " + r.Detail
}

// take gives the turn to a request, or says that another has it.
func (s *Server) take(w http.ResponseWriter) bool {
	if s.turn.TryLock() {
		return true
	}
	w.Header().Set("Retry-After", "5")
	http.Error(w, "another upload to this volume is going on", http.StatusServiceUnavailable)
	return false
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("OPTIONS "+tus.Path, s.options)
	mux.HandleFunc("POST "+tus.Path, s.create)
	mux.HandleFunc("HEAD "+tus.Path+"/{id}", s.head)
	mux.HandleFunc("PATCH "+tus.Path+"/{id}", s.patch)
	mux.HandleFunc("POST /", s.whole)
	mux.HandleFunc("PUT /", s.whole)
	mux.HandleFunc("HEAD /", func(http.ResponseWriter, *http.Request) {}) // discovery: it is there
	return s.allow(mux)
}

var errReplaced = errors.New("another upload took its place")
