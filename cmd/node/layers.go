package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	quantity "k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/transfer/layercache"
)

// Paths of the cache of layers: the directory that it writes to, the same directory mounted read-only, and where the agent
// connects.
const (
	cacheDir     = "/var/cache/berth/layers"
	cacheView    = "/run/berth/layers"
	cacheMeetDir = "/run/berth/cache"
	countsSocket = "counts.sock" // in the directory where they meet: what the layers count is asked for there
)

// How many askers are served at a time, of the whole node and of one namespace. The others make their layers themselves.
const (
	askers     = 32
	namespaced = 8
)

// others is the space that the layers leave free on the medium, or a tenth of it if that is less.
const others = 4 << 30

// cacheMemory is the limit for the Go runtime; the container has a higher one.
const cacheMemory = 640 << 20

// keepLayers serves the node's cache of layers until ctx ends.
func keepLayers(ctx context.Context, log *slog.Logger, args []string) error {
	flags := flag.NewFlagSet("layers", flag.ContinueOnError)
	size := flags.String("bytes", "20Gi", "how much room the layers may take; those that nobody used for longest go first")
	if err := flags.Parse(args); err != nil {
		return err
	}
	bound, err := quantity.ParseQuantity(*size)
	if err != nil || bound.Sign() <= 0 {
		return fmt.Errorf("--bytes %s is no size", *size)
	}
	debug.SetMemoryLimit(cacheMemory)
	cache, err := layercache.Open(cacheDir, cacheView, bound.Value(), log)
	if err != nil {
		return err
	}
	if cache.Spare, err = layercache.FreeAbove(cacheDir, others); err != nil {
		return err
	}
	limit := &quota{has: map[string]int{}}
	l, err := rendezvous.ServeAt(cacheMeetDir+"/"+rendezvous.Socket, func(c *net.UnixConn, hello rendezvous.Hello) bool {
		if !limit.enter(hello.From) {
			cache.TurnAway()
			return false
		}
		go func() {
			defer limit.leave(hello.From)
			if err := cache.Serve(ctx, c, hello.From, layercache.DefaultPace); err != nil {
				log.Info("no layer for a machine", "namespace", hello.From, "why", err.Error())
			}
		}()
		return true
	})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	counts, err := listenForCounts(cacheMeetDir)
	if err != nil {
		return err
	}
	defer func() { _ = counts.Close() }()
	go cache.TellCounts(counts)
	<-ctx.Done()
	return nil
}

// listenForCounts returns where the agent asks what the layers count.
func listenForCounts(dir string) (net.Listener, error) {
	path := filepath.Join(dir, countsSocket)
	_ = os.Remove(path) // of a container that ran before in this pod
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics of layers: %w", err)
	}
	// The agent is another user, without root's rights. No one else can reach this directory.
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// quota counts who is served.
type quota struct {
	mu  sync.Mutex
	all int
	has map[string]int // by namespace
}

func (q *quota) enter(namespace string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all >= askers || q.has[namespace] >= namespaced {
		return false
	}
	q.all++
	q.has[namespace]++
	return true
}

func (q *quota) leave(namespace string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all--
	if q.has[namespace]--; q.has[namespace] == 0 {
		delete(q.has, namespace)
	}
}
