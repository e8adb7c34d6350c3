package main

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/internal/upload/minrate"
	"github.com/berth-vm/berth/internal/upload/proxy"
)

// parts are the functions that run in processes of their own.
var parts = map[string]func(args []string) error{"proxy": runProxy, "sink": runSink, "send": runSend, "copy": runCopy}

// serve serves over TLS until it is killed.
func serve(dir string, h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "serving at %s\n", l.Addr())
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}}
	return s.ServeTLS(l, filepath.Join(dir, "server", "tls.crt"), filepath.Join(dir, "server", "tls.key"))
}

// runProxy returns the proxy with one worker: DIR ADDRESS.
func runProxy(args []string) error {
	key, err := os.ReadFile(filepath.Join(args[0], "server", "public"))
	if err != nil {
		return err
	}
	return serve(args[0], proxy.New(proxy.Options{
		Find: func(_ context.Context, c token.Claim) (proxy.Worker, error) {
			return proxy.Worker{Claim: c, Address: args[1], Name: "worker"}, nil
		},
		Keys: func() []ed25519.PublicKey { return []ed25519.PublicKey{key} },
		Dial: proxy.NewDialer(filepath.Join(args[0], "client")), Places: proxy.DefaultPlaces, Patience: proxy.DefaultPatience, Pace: minrate.Default,
		Log: slog.New(slog.DiscardHandler),
	}))
}

// runSink writes what it is sent to a file and fsyncs it: DIR FILE.
func runSink(args []string) error {
	return serve(args[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Create(args[1])
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{f}, r.Body, make([]byte, 1<<20))
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
}

// runSend uploads a file: DIR URL TOKEN FILE.
func runSend(args []string) error {
	ca, err := os.ReadFile(filepath.Join(args[0], "server", "ca.crt"))
	if err != nil {
		return err
	}
	return client.Send(context.Background(), args[3], client.Options{
		URL: args[1], CA: ca, Token: func(context.Context) (string, error) { return args[2], nil },
	})
}

// runCopy sends a file and nothing else: DIR URL FILE.
func runCopy(args []string) error {
	ca, err := os.ReadFile(filepath.Join(args[0], "server", "ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	f, err := os.Open(args[2])
	if err != nil {
		return err
	}
	defer f.Close()
	c := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, WriteBufferSize: 64 << 10,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}}
	answer, err := c.Post(args[1], "application/octet-stream", f)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answered %s", answer.Status)
	}
	return nil
}
