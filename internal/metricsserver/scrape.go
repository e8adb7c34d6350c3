// Package metricsserver serves a program's metrics to Prometheus, at a port of its own: to clients whose token allows GET
// /metrics, or to all clients, over plain HTTP, if the program is configured so. It does not know which metrics there are.
package metricsserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berth-vm/berth/internal/connlimit"
)

// Registry has what is measured and what the program itself needs.
func Registry(measured ...prometheus.Collector) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(measured, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))...)
	return registry
}

// Handler answers GET /metrics.
func Handler(from prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	// Only one scrape runs at a time, because collecting the metrics costs processor time.
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{MaxRequestsInFlight: 2}))
	return mux
}

// connections is how many unauthenticated connections may be open at a time, and how many that have shown a token. Any pod may
// connect, and each connection takes memory of a program with other work.
const connections = 64

// Environment names the variable that programs take Server.TLS from.
const Environment = "BERTH_METRICS_TLS"

// Server shows metrics.
type Server struct {
	Address string
	// TLS is a directory with the files tls.crt and tls.key, which may appear later and be replaced. With it, clients need a
	// token, which must not be sent in the clear or to an unknown server. "" means plain HTTP without authentication.
	TLS string
	// May says whether the owner of a token may read the metrics. nil: the API server of the cluster is asked.
	May  func(ctx context.Context, token string) (bool, error)
	From prometheus.Gatherer
	Log  *slog.Logger
}

// Serve serves the metrics to all clients, over plain HTTP.
func Serve(address string, log *slog.Logger, measured ...prometheus.Collector) (end func(), err error) {
	return Server{Address: address, From: Registry(measured...), Log: log}.Serve()
}

// Serve listens until the function that it returns is called. A server that fails later says so in the log: what the program is
// for continues.
func (s Server) Serve() (end func(), err error) {
	handler := Handler(s.From)
	if s.TLS != "" {
		may := s.May
		if may == nil {
			reviews, err := InCluster()
			if err != nil {
				return nil, fmt.Errorf("find who says who may read metrics: %w", err)
			}
			may = reviews.May
		}
		handler = newGate(may, time.Now).only(handler)
	}
	l, err := net.Listen("tcp", s.Address) //nolint:noctx // it is there as long as the process is
	if err != nil {
		return nil, fmt.Errorf("listen for Prometheus: %w", err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog:    slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connection{}, c) },
	}
	limited := net.Listener(connlimit.Limit(l, connections, connections))
	if s.TLS != "" {
		files := &certificate{dir: s.TLS}
		limited = tls.NewListener(limited, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: files.get})
	}
	go func() {
		if err := server.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			s.Log.Error("metrics are not served any more", "error", err)
		}
	}()
	return func() { _ = server.Close() }, nil
}

type connection struct{}

// certificate reads the files of a certificate again from time to time: they are replaced under way.
type certificate struct {
	dir  string
	mu   sync.Mutex
	pair *tls.Certificate
	when time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.when) < 10*time.Second {
		return c.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "tls.crt"), filepath.Join(c.dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("there is no certificate for metrics yet: %w", err)
	}
	c.pair, c.when = &pair, time.Now()
	return c.pair, nil
}
