package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
)

// profileWork does a work in this process and keeps a CPU profile of it, to explain a number that is not good enough.
func (b *bench) profileWork(ctx context.Context, w work) (err error) {
	t := b.taskOf(w)
	path := filepath.Join(filepath.Dir(b.images.dir), w.letter+".prof")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	r := transfer.New(t).Run(ctx)
	pprof.StopCPUProfile()
	if r.Outcome != task.Done {
		return fmt.Errorf("%s: %s", r.Reason, r.Detail)
	}
	fmt.Fprintf(b.log, "%s; read it with `go tool pprof -top %s`\n", r.Format, path)
	return nil
}

// taskOf returns what the worker makes of the work's flags.
func (b *bench) taskOf(w work) task.Task {
	from := w.ours[strings.LastIndex(w.ours, " ")+1:]
	env := map[string]string{"disk": b.images.path("c.raw"), "xfs": b.xfs, "web": b.web.base}
	if b.hub != nil {
		env["hub"] = b.hub.host
	}
	from = os.Expand(from, func(name string) string { return env[name] })
	t := task.Task{Version: task.Version, Volume: "bench", Target: task.Target{Path: filepath.Join(b.out, "disk.img"), Content: task.Disk}}
	switch {
	case strings.HasPrefix(from, "http://"):
		t.Source.HTTP = &task.HTTP{URL: from}
	case strings.HasPrefix(from, "docker://"):
		t.Source.Registry = &task.Registry{URL: from, PlainHTTP: true}
	default:
		t.Source.Local = &task.Local{Path: from, Raw: true}
	}
	return t
}
