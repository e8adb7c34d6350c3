package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"time"

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
	address := "http://127.0.0.1:" + port + "/enter" + door.Query()
	if _, err := fmt.Fprintf(out, "The page is at %s\nWhoever has this address has your rights in the cluster. Ctrl-c ends it.\n", address); err != nil {
		return err
	}
	if o.Open {
		open(ctx, address)
	}
	return Serve(ctx, l, s.Handler())
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

// open shows an address in the person's browser, if there is one. That there is none is no error: the address was printed.
func open(ctx context.Context, address string) {
	program, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		program = "open"
	case "windows":
		program, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	if path, err := exec.LookPath(program); err == nil {
		cmd := exec.CommandContext(ctx, path, args...)
		if cmd.Start() == nil {
			go func() { _ = cmd.Wait() }()
		}
	}
}
