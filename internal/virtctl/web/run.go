package web

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/web/watch"
)

// Options are the flags.
type Options struct {
	Port        int
	Open        bool
	UploadProxy string
}

// Run serves the page on loopback with the client's rights until ctx ends, and writes its address.
func Run(ctx context.Context, c *kube.Client, o Options, out io.Writer) error {
	store, err := watch.Start(ctx, c)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
	if err != nil {
		return fmt.Errorf("open the local port: %w", err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	door := NewSecretDoor(&Person{Client: c, Store: store}, port)
	s := &Server{Door: door, Hosts: []string{"127.0.0.1", "localhost"}, UploadProxy: o.UploadProxy, Log: slog.New(slog.DiscardHandler)}
	address := func() string { return "http://127.0.0.1:" + port + "/enter" + door.Query() }
	if _, err := fmt.Fprintf(out, "The page is at %s\nWhoever opens this address first has your rights in the cluster. Ctrl-c ends it.\n", address()); err != nil {
		return err
	}
	cleanUp := func() {}
	if o.Open {
		cleanUp = sync.OnceFunc(openBrowser(ctx, address()))
		defer cleanUp()
	}
	door.Used = func() {
		cleanUp()
		_, _ = fmt.Fprintf(out, "A browser has opened it. If it was not yours, end this with ctrl-c. The address for another browser: %s\n", address())
	}
	return Serve(ctx, l, s.Handler())
}

// SignIn are the flags of a page that many people use.
type SignIn struct {
	Listen      string
	Hosts       []string // names under which it is reached, besides this machine's own
	TLS         string   // directory with tls.crt and tls.key; empty: a certificate is made at the start
	UploadProxy string
}

// RunSignIn serves the page to people who sign in with a token. Each has their own rights and the server has none. Only the
// cluster's address and authority are taken from the configuration.
func RunSignIn(ctx context.Context, config *rest.Config, o SignIn, out io.Writer) error {
	door, err := NewTokenDoor(ctx, config)
	if err != nil {
		return err
	}
	own, err := certificate(o.TLS)
	if err != nil {
		return err
	}
	listen := net.ListenConfig{}
	l, err := listen.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("open the port: %w", err)
	}
	s := &Server{
		Door: door, Hosts: append([]string{"127.0.0.1", "localhost"}, o.Hosts...), UploadProxy: o.UploadProxy,
		Log: slog.New(slog.NewJSONHandler(out, nil)),
	}
	mux := http.NewServeMux()
	mux.Handle("/", s.Handler())
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {}) // the kubelet asks by address
	_, _ = fmt.Fprintf(out, "The page is at https://%s\n", l.Addr())
	secured := tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: own, NextProtos: []string{"http/1.1"}})
	return Serve(ctx, secured, mux)
}

// certificate returns the one in a directory, read for every connection because it is renewed, or one that is made now.
func certificate(dir string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if dir != "" {
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
			return &pair, err
		}, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "berth-web"}, DNSNames: []string{"localhost", "berth-web", "berth-web.berth.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	pair := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil }, nil
}

// Serve serves a handler until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with it
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}
