package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
)

// serveVolume lets the worker of a clone's target read a volume, until it is told to stop.
func serveVolume(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("worker serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("task", task.TaskPath, "`file` to read what to serve from")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	var s task.Serve
	if err := readJSON(*path, &s); err != nil {
		fmt.Fprintf(stderr, "worker serve: %v\n", err)
		return 1
	}
	err := transfer.Serve(ctx, s, func(a net.Addr) { fmt.Fprintf(stderr, "worker: serving %s at %s\n", s.Volume, a) })
	if err != nil {
		fmt.Fprintf(stderr, "worker serve: %v\n", err)
		return 1
	}
	return 0
}
