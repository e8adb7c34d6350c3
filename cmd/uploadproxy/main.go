// Command uploadproxy is the door that uploads come through. This file is flags and wiring; what it does is in
// internal/upload/proxy.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/berth-vm/berth/internal/metricsserver"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/upload/minrate"
	"github.com/berth-vm/berth/internal/upload/proxy"
	"github.com/berth-vm/berth/internal/version"
)

type options struct {
	listen, tls, client, keys string
	metrics, metricsTLS       string
	places                    int
	perNamespace, perClaim    int
}

func main() {
	version.Answer()
	var o options
	flag.StringVar(&o.listen, "listen", ":8443", "`address` to listen at")
	flag.StringVar(&o.tls, "tls", "/etc/berth/tls", "`directory` with the tls.crt and tls.key that clients see; empty for plain HTTP")
	flag.StringVar(&o.client, "client", "/etc/berth/client", "`directory` with the tls.crt, tls.key and ca.crt for workers")
	flag.StringVar(&o.keys, "token-keys", "/etc/berth/token-keys", "`directory` with the public keys of tokens")
	flag.StringVar(&o.metrics, "metrics", "", "`address` at which Prometheus finds /metrics; nowhere if empty")
	flag.StringVar(&o.metricsTLS, "metrics-tls", os.Getenv(metricsserver.Environment),
		"`directory` with the tls.crt and tls.key that /metrics is served with, to those whose token may get it; empty: plain HTTP, for anybody")
	flag.IntVar(&o.places, "places", proxy.DefaultPlaces, "how many uploads there may be at once")
	flag.IntVar(&o.perNamespace, "places-per-namespace", 0, "how many of them one namespace may have; 0 is half of them")
	flag.IntVar(&o.perClaim, "places-per-claim", proxy.DefaultPerClaim, "how many requests there may be at once for one claim")
	flag.Parse()
	if o.perNamespace <= 0 {
		o.perNamespace = max(1, o.places/2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "uploadproxy: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// How a proxy that was told to stop ends: clients are still sent here for a moment, and are let in; then uploads under way
// may go on for a while. A tus client goes on elsewhere.
const (
	linger = 5 * time.Second
	leave  = 20 * time.Second
)

func run(ctx context.Context, o options) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	config.QPS, config.Burst = 100, 200 // two reads for each of fifty uploads at once
	cluster, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	tell, done := teller(cluster)
	defer done()
	meter := proxy.NewMeter()
	if o.metrics != "" {
		end, err := metricsserver.Server{Address: o.metrics, TLS: o.metricsTLS, From: metricsserver.Registry(meter), Log: log}.Serve()
		if err != nil {
			return err
		}
		defer end()
	}
	server := &http.Server{
		Addr: o.listen, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Handler: proxy.New(proxy.Options{
			Find: proxy.Finder(cluster), Keys: func() []ed25519.PublicKey { return publicKeys(o.keys) },
			Dial: proxy.NewDialer(o.client), Tell: tell, Places: o.places, PerNamespace: o.perNamespace, PerClaim: o.perClaim, Patience: proxy.DefaultPatience,
			Pace: minrate.Default, Meter: meter, Log: log,
		}),
	}
	if o.tls != "" {
		server.TLSConfig = &tls.Config{
			MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"}, // an upload has a connection of its own, and its flow control
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(filepath.Join(o.tls, "tls.crt"), filepath.Join(o.tls, "tls.key"))
				return &pair, err
			},
		}
	}
	return serve(ctx, server)
}

// serve serves until ctx ends, and then lets what is under way finish.
func serve(ctx context.Context, s *http.Server) error {
	failed := make(chan error, 1)
	go func() {
		if s.TLSConfig == nil {
			failed <- s.ListenAndServe()
			return
		}
		failed <- s.ListenAndServeTLS("", "")
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-time.After(linger):
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), leave)
	defer cancel()
	if err := s.Shutdown(ending); errors.Is(err, context.DeadlineExceeded) {
		return s.Close()
	}
	return nil
}

// publicKeys reads the keys as they are at this moment. A key that cannot be read signs nothing.
func publicKeys(dir string) []ed25519.PublicKey {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	published := map[string]string{}
	for _, e := range entries {
		if text, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
			published[e.Name()] = string(text)
		}
	}
	return token.ReadPublic(published)
}

// teller shows failed uploads as events of their volumes.
func teller(c kubernetes.Interface) (tell func(proxy.Worker, string), done func()) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "cdi-uploadproxy"})
	return func(w proxy.Worker, message string) {
		recorder.Event(&corev1.ObjectReference{
			APIVersion: w.Owner.APIVersion, Kind: w.Owner.Kind, Namespace: w.Claim.Namespace, Name: w.Owner.Name,
			UID: types.UID(w.Owner.UID),
		}, corev1.EventTypeWarning, "UploadFailed", message)
	}, broadcaster.Shutdown
}
