//go:build e2e

package framework

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A limit says how long something may take on a busy machine, which is one where at most so many processes want each processor.
// Beyond that an emulated guest is slower by as much: what it does in four minutes takes ten at a load of 20 on two processors.
// There a limit is longer by the same factor, but not more than slowest.
const (
	busy    = 4
	slowest = 4
)

// slowness is by how much the limits of waits are longer now.
func slowness() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 1 // not Linux
	}
	return stretch(string(text), runtime.NumCPU())
}

// stretch is slowness for a content of /proc/loadavg.
func stretch(loadavg string, processors int) float64 {
	first, _, _ := strings.Cut(loadavg, " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 1
	}
	return min(slowest, max(1, load/float64(busy*processors)))
}

// patience is the rest of a limit.
type patience struct {
	left time.Duration
	seen time.Time
}

// over reports whether the limit is reached if the machine has been slower by that factor since the last call.
func (p *patience) over(now time.Time, slower float64) bool {
	p.left -= time.Duration(float64(now.Sub(p.seen)) / slower)
	p.seen = now
	return p.left <= 0
}

// WithPatience is context.WithTimeout with a limit that is longer while the machine has more to do than a busy one.
func WithPatience(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	p := patience{limit, time.Now()}
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if p.over(time.Now(), slowness()) {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel
}
