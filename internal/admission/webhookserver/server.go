// Package webhookserver serves webhooks over TLS to the API server. Every pod of the cluster can connect to it, so it bounds the
// memory that connections and reviews can take, and answers only clients that know the secret part of the paths.
//
// It does not know which webhooks there are; internal/admission does.
package webhookserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/berth-vm/berth/internal/connlimit"
)

// Every pod in the cluster can connect to the server. The memory that connections can take is bounded, and leaves the API server enough.
const (
	mostUnknown = 256 // connections that have not shown a word: about 50 KiB each with TLS
	mostKnown   = 512 // the API server has a few, of many requests each

	// mostReview is the largest review that is taken: the old and the new object, each at most as large as the API server takes a request (3 MiB).
	mostReview = 7 << 20
	// mostReviews bounds the reviews that are read and answered at a time. Decoding one takes about five times its size: 160 MiB of the 512.
	mostReviews = 32 << 20
	// smallReview is the least that any review counts towards that bound, so that there are at most 2048 at a time.
	smallReview = 16 << 10

	readHeader = 5 * time.Second
	readReview = 10 * time.Second
	// patience is how long a review may take if the API server sets no timeout. It usually does, and is answered a moment before that:
	// the message of a timeout would tell the user the path.
	patience = 5 * time.Second
)

// Server serves webhooks to clients that know their paths; other requests get an empty answer. It is a webhook.Server for a manager.
type Server struct {
	webhook.Server // registers the webhooks, and counts what is asked of them
	o              Options
	room           *semaphore.Weighted
	started        atomic.Bool
}

// Options configure where a Server listens and which clients it answers.
type Options struct {
	Address        string // ":9443" if empty
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Open returns the path of the webhook that is asked, if the path of the request has the right word.
	Open func(path string) (plain string, ok bool)
}

// New makes a server that a manager starts.
func New(o Options) *Server {
	if o.Address == "" {
		o.Address = ":" + strconv.Itoa(webhook.DefaultPort)
	}
	return &Server{Server: webhook.NewServer(webhook.Options{}), o: o, room: semaphore.NewWeighted(mostReviews)}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica answers.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends, and then finishes what is under way.
func (s *Server) Start(ctx context.Context) error {
	plain, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.o.Address)
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: readHeader, ReadTimeout: readReview, WriteTimeout: 2 * readReview, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 16 << 10,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: s.o.GetCertificate},
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReceiveBufferPerConnection: 256 << 10, MaxReceiveBufferPerStream: 128 << 10},
		ErrorLog:  log.New(io.Discard, "", 0), // strangers must not fill the log
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connection{}, c)
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(connlimit.Limit(plain, mostUnknown, mostKnown), "", "") }()
	s.started.Store(true)
	select {
	case err := <-ended:
		return fmt.Errorf("serve webhooks: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := server.Shutdown(ending); errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return nil
}

// StartedChecker returns whether the API server can be answered.
func (s *Server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.started.Load() {
			return errors.New("the webhook server has not started yet")
		}
		_, err := s.o.GetCertificate(&tls.ClientHelloInfo{})
		return err
	}
}

type connection struct{}

// ServeHTTP answers a request whose path has the right word. Any other is a 404, without a look at its body.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	plain, ok := s.o.Open(r.URL.Path)
	if !ok {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if c, ok := r.Context().Value(connection{}).(net.Conn); ok {
		connlimit.Know(c)
	}
	ctx, cancel := context.WithTimeout(r.Context(), patienceOf(r.URL.Query()))
	defer cancel()
	size := r.ContentLength
	switch {
	case size > mostReview:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	case size < 0:
		size = mostReview
	}
	size = max(size, smallReview)
	if err := s.room.Acquire(ctx, size); err != nil {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer s.room.Release(size)
	asked := r.Clone(ctx)
	asked.URL.Path, asked.URL.RawPath = plain, ""
	asked.Body = http.MaxBytesReader(w, r.Body, size)
	s.WebhookMux().ServeHTTP(w, asked)
}

// patienceOf returns how long a request may take: a tenth less than the API server waits.
func patienceOf(query url.Values) time.Duration {
	d, err := time.ParseDuration(query.Get("timeout"))
	if err != nil || d <= 0 || d > time.Minute {
		d = patience
	}
	return d - d/10
}
