// Command worker moves the bytes of one volume: it imports, clones, receives, serves or exports one, as a task.Task or its flags say, and
// ends. With `stream` it serves the disks in container images, until it is told to stop. It has no Kubernetes client and needs none: its task is a file, its report another.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/berth-vm/berth/internal/version"
)

// memoryLimit is the limit for the Go runtime. A worker's container has 128 MiB; stacks and the binary's own pages take the rest.
const memoryLimit = 96 << 20

const usage = `usage: worker run [--task FILE] [--report FILE] [--listen ADDRESS]
       worker serve [--task FILE]
       worker export [--task FILE]
       worker poll [--task FILE] [--report FILE]
       worker backup [--task FILE] [--report FILE] [--listen ADDRESS]
       worker remove-backups [--task FILE] [--report FILE]
       worker bind [--task FILE] [--report FILE]
       worker import --from SOURCE --to TARGET [flags]
       worker receive --to TARGET [flags]
       worker stream [flags] IMAGE...
`

// garbagePercent is how much garbage there may be in relation to live memory, which is mostly reused buffers: frequent collections
// cost little and keep a worker below 64 MiB.
const garbagePercent = 20

// waiting is how many threads may wait for the disk at a time without idling a core, because Go notices a blocked thread late.
const waiting = 2

func main() {
	version.Answer()
	debug.SetMemoryLimit(memoryLimit)
	debug.SetGCPercent(garbagePercent)
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + waiting)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main with arguments and streams as parameters.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch verb, args := args[0], args[1:]; verb {
	case "run":
		return runTask(ctx, args, stderr)
	case "serve":
		return serveVolume(ctx, args, stderr)
	case "export":
		return exportVolumes(ctx, args, stderr)
	case "backup":
		return backUp(ctx, args, stderr)
	case "remove-backups":
		return removeBackups(ctx, args, stderr)
	case "bind":
		return bindClaim(args, stderr)
	case "poll":
		return pollSource(ctx, args, stderr)
	case "import":
		return importImage(ctx, args, stdout, stderr)
	case "receive":
		return receiveImage(ctx, args, stderr)
	case "stream":
		return streamImages(ctx, args, stderr)
	default:
		fmt.Fprintf(stderr, "worker: no such command %q\n%s", verb, usage)
		return 2
	}
}
