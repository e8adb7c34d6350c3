// Command launcher runs one virtual machine in its pod: `launcher run`. The other verbs are for pods beside it or before
// it: `launcher console` connects the terminal to the guest's serial port, `launcher consume` does nothing but hold the
// room and the claims of a machine that is still to come, and `launcher copy` takes a disk or a kernel out of a container
// image that has nothing in it to do so itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/berth-vm/berth/internal/launch"
)

// reportPath is where the kubelet looks for a container's last words.
const reportPath = "/dev/termination-log"

func main() {
	if os.Getpid() == 1 {
		code, err := beInit()
		if err != nil {
			fmt.Fprintln(os.Stderr, "launcher:", err)
			code = 1
		}
		os.Exit(code)
	}
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "launcher:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "run":
		return run()
	case len(args) == 1 && args[0] == "console":
		return console()
	case len(args) == 1 && args[0] == "consume":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		<-ctx.Done()
		return nil
	case len(args) >= 3 && args[0] == "copy":
		return launch.Copy(args[1:len(args)-1], args[len(args)-1])
	}
	return errors.New("usage: launcher run | console | consume | copy FILE... DIRECTORY")
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l := &launch.Launcher{Host: launch.Probe(), Guest: os.Stdout, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	serveReadiness(l)
	r := l.Run(ctx)
	if err := r.Write(reportPath); err != nil {
		return err
	}
	if !r.OK() {
		return fmt.Errorf("%s: %s", r.End, r.Detail)
	}
	return nil
}

// serveReadiness answers the pod's readiness probe: ready means that the guest runs.
func serveReadiness(l *launch.Launcher) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !l.Ready() {
			http.Error(w, "the guest does not run", http.StatusServiceUnavailable)
		}
	})
	s := &http.Server{Addr: fmt.Sprintf(":%d", launch.ReadyPort), Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.ListenAndServe() }()
}

func console() error {
	conn, err := net.Dial("unix", launch.ConsoleSocket)
	if err != nil {
		return fmt.Errorf("the guest has no console yet: %w", err)
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.Close()
	}()
	_, err = io.Copy(os.Stdout, conn)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
