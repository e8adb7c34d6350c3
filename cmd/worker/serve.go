package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/volumeserver"
)

// serveVolume lets the worker of a clone's target read a volume, until it is told to stop.
func serveVolume(ctx context.Context, args []string, stderr io.Writer) int {
	return servesTask(args, stderr, "serve", func(s task.Serve, ready func(string)) error {
		return volumeserver.Serve(ctx, s, func(a net.Addr) { ready(fmt.Sprintf("serving %s at %s", s.Volume, a)) })
	})
}

// exportVolumes lets people download volumes, until it is told to stop.
func exportVolumes(ctx context.Context, args []string, stderr io.Writer) int {
	return servesTask(args, stderr, "export", func(e task.Export, ready func(string)) error {
		return volumeserver.Export(ctx, e, func(a net.Addr) { ready(fmt.Sprintf("exporting %d volumes at %s", len(e.Volumes), a)) })
	})
}

// servesTask returns a verb that serves the volume of its task.
func servesTask[T any](args []string, stderr io.Writer, verb string, serve func(task T, ready func(string)) error) int {
	flags := flag.NewFlagSet("worker "+verb, flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("task", task.TaskPath, "`file` to read what to serve from")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	var t T
	err := readJSON(*path, &t)
	if err == nil {
		err = serve(t, func(where string) { fmt.Fprintf(stderr, "worker: %s\n", where) })
	}
	if err != nil {
		fmt.Fprintf(stderr, "worker %s: %v\n", verb, err)
		return 1
	}
	return 0
}
