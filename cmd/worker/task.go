package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
	"github.com/berth-vm/berth/internal/upload/receive"
)

// runTask carries out the task in a file, shows its progress meanwhile and leaves a report.
func runTask(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("worker run", flag.ContinueOnError)
	flags.SetOutput(stderr)
	taskPath := flags.String("task", task.TaskPath, "`file` to read the task from")
	reportPath := flags.String("report", task.ReportPath, "`file` to write the report to")
	listen := flags.String("listen", ":"+strconv.Itoa(task.ProgressPort), "`address` to show progress at; empty for none")
	every := flags.Duration("checkpoint", transfer.DefaultEvery, "how often to note what is done at the target")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 || *every <= 0 {
		return 2
	}
	var t task.Task
	if err := readJSON(*taskPath, &t); err != nil {
		report := task.Report{Version: task.Version, Outcome: task.Fatal, Reason: task.BadTask, Detail: err.Error()}
		return leave(report, *reportPath, stderr)
	}
	report := carryOut(ctx, workOn(t, *every, stderr), *listen, stderr)
	return leave(report, *reportPath, stderr)
}

// work is a task under way.
type work interface {
	Run(ctx context.Context) task.Report
	Progress() task.Progress
}

// workOn returns what carries out t: a transfer, or a server that waits for one.
func workOn(t task.Task, every time.Duration, stderr io.Writer) work {
	if t.Source.Upload != nil {
		s := receive.New(t)
		s.Every = every
		s.Ready = func(a net.Addr) { fmt.Fprintf(stderr, "worker: waiting for an upload to %s at %s\n", t.Volume, a) }
		return s
	}
	w := transfer.New(t)
	w.Every = every
	return w
}

// carryOut does the work and shows its progress meanwhile.
func carryOut(ctx context.Context, work work, listen string, stderr io.Writer) task.Report {
	if listen != "" {
		stop, err := showProgress(listen, work.Progress)
		if err != nil {
			fmt.Fprintf(stderr, "worker: progress is not shown: %v\n", err) // the transfer matters more
		} else {
			defer stop()
		}
	}
	return work.Run(ctx)
}

// taskMax bounds a task file; a real one has some hundreds of bytes.
const taskMax = 1 << 20

func readJSON(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	defer f.Close() // opened for reading
	d := json.NewDecoder(io.LimitReader(f, taskMax))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("read the task in %s: %w", path, err)
	}
	return nil
}

// reportMax is the most that the kubelet keeps of a termination message.
const reportMax = 4096

// leave writes the report and returns the exit code that goes with it.
func leave(r task.Report, path string, stderr io.Writer) int {
	b, err := json.Marshal(r)
	if over := len(b) - reportMax; err == nil && over > 0 {
		r.Detail = shorten(r.Detail, len(r.Detail)-over-len("..."))
		if b, err = json.Marshal(r); len(b) > reportMax {
			r.Labels, r.Detail = nil, shorten(r.Detail, 512)
			b, err = json.Marshal(r)
		}
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	fmt.Fprintf(stderr, "worker: %s\n", b)
	if err != nil {
		fmt.Fprintf(stderr, "worker: leave the report: %v\n", err)
		return 1
	}
	if r.Outcome != task.Done {
		return 1
	}
	return 0
}

// shorten cuts s to at most n bytes, at its end.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:max(n, 0)] + "..."
}

// showProgress serves the progress document until stop is called.
func showProgress(listen string, progress func() task.Progress) (stop func(), err error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+task.ProgressPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(progress()) // the client is gone
	})
	s := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	return func() {
		_ = s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			return
		}
	}, nil
}
