// Package scrape shows what a program measures to Prometheus, at a port of its own. It does not know what is measured. Nobody has to say
// who they are: what is shown are numbers, and nothing can be asked for.
package scrape

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

// Handler answers GET /metrics with what is measured and with what the program itself needs.
func Handler(measured ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(measured, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))...)
	mux := http.NewServeMux()
	// Two scrapes at once are one more than there should be, and measuring costs something.
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2}))
	return mux
}

// connections is how many may be open at a time. Any pod may connect, and each takes memory of a program that has other things to do: whoever takes all
// of them keeps others from the numbers, and from nothing else.
const connections = 64

// Serve listens at an address until the function that it returns is called. A server that fails later says so in the log: what the
// program is for goes on.
func Serve(address string, log *slog.Logger, measured ...prometheus.Collector) (end func(), err error) {
	l, err := net.Listen("tcp", address) //nolint:noctx // it is there as long as the process is
	if err != nil {
		return nil, fmt.Errorf("listen for Prometheus: %w", err)
	}
	s := &http.Server{
		Handler: Handler(measured...), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := s.Serve(netutil.LimitListener(l, connections)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "error", err)
		}
	}()
	return func() { _ = s.Close() }, nil
}
