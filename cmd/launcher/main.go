// Command launcher runs one virtual machine in its pod: `launcher run`. The other verbs are for pods beside it or before it:
// `launcher console` connects the terminal to the guest's serial port, `launcher probe` checks the health of the guest, `launcher
// consume` only reserves the resources and the claims of a machine that is not started yet, `launcher hold` hands a disk to a
// running machine, and `launcher copy` takes a disk or a kernel out of a container image that has nothing in it to do so itself.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-vm/berth/internal/launcher"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/version"
)

// reportPath is the file from which the kubelet reads a container's termination message.
const reportPath = "/dev/termination-log"

func main() {
	version.Answer()
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
	case len(args) == 1 && slices.Contains(verbs, args[0]):
		return verb(args[0])
	case len(args) == 1 && (args[0] == launcherapi.FreezeVerb || args[0] == launcherapi.ThawVerb):
		return quiet(args[0])
	case len(args) == 1 && (args[0] == launcherapi.PreBackupVerb || args[0] == launcherapi.PostBackupVerb):
		return backupHook(args[0], launcherapi.VerbSocket, os.Stdout)
	case len(args) == 1 && args[0] == "consume":
		ctx, stop := untilTold()
		defer stop()
		<-ctx.Done()
		return nil
	case len(args) == 2 && args[0] == "probe":
		return ask(args[1])
	case len(args) == 4 && args[0] == "hold":
		return hold(args[1], args[2] == launcherapi.ReadOnly, args[3])
	case len(args) >= 3 && args[0] == "copy":
		return launcher.Copy(args[1:len(args)-1], args[len(args)-1])
	}
	return errors.New("usage: launcher run | console | freeze | thaw | pause | unpause | guestosinfo | filesystemlist | userlist | forward | vnc | screenshot | reset | softreboot | fsfreeze | fsthaw | backup | pre-backup | post-backup | consume | probe readiness|liveness | hold VOLUME read-only|read-write SIZE|login | copy FILE... DIRECTORY")
}

func untilTold() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

func run() error {
	ctx, stop := untilTold()
	defer stop()
	l := launcher.New(os.Stdout, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	mux := answers(l.Ready)
	mux.HandleFunc("GET "+launcherapi.ReturnsPath, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(l.Returns())
	})
	serve(mux)
	if err := serveProbes(l.Ask); err != nil {
		return err
	}
	r := l.Run(ctx)
	if err := r.Write(reportPath); err != nil {
		return err
	}
	if !r.OK() {
		return fmt.Errorf("%s: %s", r.End, r.Detail)
	}
	return nil
}

// hold keeps a claim in use and hands its disk to the launcher of another pod. A claim without one gets an empty disk of
// that size, unless it is 0. Of a disk at a server it hands over the login.
func hold(volume string, readOnly bool, size string) error {
	ctx, stop := untilTold()
	defer stop()
	h := &rendezvous.Holder{Volume: volume, ReadOnly: readOnly, Login: size == launcherapi.HoldLogin}
	if !h.Login {
		var err error
		if h.Empty, err = strconv.ParseInt(size, 10, 64); err != nil {
			return fmt.Errorf("size of the disk: %w", err)
		}
	}
	serve(answers(h.Ready))
	err := h.Hold(ctx)
	if err != nil { // the controller shows it on the machine
		err = errors.Join(err, os.WriteFile(reportPath, []byte(err.Error()), 0o644))
	}
	return err
}

// answers returns those to the pod's own probes: ready means that the guest runs, or that it has the disk.
func answers(ready func() bool) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "the guest is not that far", http.StatusServiceUnavailable)
		}
	})
	return mux
}

func serve(mux *http.ServeMux) {
	s := &http.Server{Addr: fmt.Sprintf(":%d", launcherapi.ReadyPort), Handler: notFromHere(mux, net.InterfaceAddrs), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.ListenAndServe() }()
}

// notFromHere refuses requests from this pod: the guest can send them, through QEMU's network, by way of the loopback (to the
// guest that is 10.0.2.2) and of the pod's own address. The kubelet and the controller connect from outside.
func notFromHere(next http.Handler, addresses func() ([]net.Addr, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own, err := addresses()
		from, _, splitErr := net.SplitHostPort(r.RemoteAddr)
		ip := net.ParseIP(from)
		mine := func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip)
		}
		if err != nil || splitErr != nil || ip == nil || ip.IsLoopback() || slices.ContainsFunc(own, mine) {
			http.Error(w, "this pod may not ask", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serveProbes asks the guest for the kubelet, which runs this very program for it: it may run a command in the guest, so it
// listens where only this pod's processes reach it, and the guest, which has the pod's network, does not.
func serveProbes(ask func(context.Context, string) error) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /probe/{which}", func(w http.ResponseWriter, r *http.Request) {
		if err := ask(r.Context(), r.PathValue("which")); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	_ = os.Remove(launcherapi.ProbeSocket) // of a container that ran before in this pod
	l, err := net.Listen("unix", launcherapi.ProbeSocket)
	if err != nil {
		return fmt.Errorf("wait for probes: %w", err)
	}
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.Serve(l) }()
	return nil
}

// ask returns a probe of the pod's that the launcher carries out: the guest agent has one line, and the launcher holds it.
func ask(which string) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", launcherapi.ProbeSocket)
	}}}
	reply, err := client.Get("http://launcher/probe/" + url.PathEscape(which))
	if err != nil {
		return fmt.Errorf("ask the launcher: %w", err)
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(reply.Body, 1<<10))
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}

func console() error {
	conn, err := net.Dial("unix", launcherapi.ConsoleSocket)
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
