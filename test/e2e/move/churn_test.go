//go:build e2e

package move

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// churning is a guest that writes to its disks all the time, and ticks. What it was last known to have done is kept, so that a move can be told
// from a start.
type churning struct {
	y     *fixture.Machines
	vm    *kubevirt.VirtualMachine
	disks []string

	ticks  *ticks
	up     float64
	run    string
	blocks map[string]uint64 // written, by disk
}

// churns has the guest write to these disks until it ends, or is told to be calm.
func churns(y *fixture.Machines, vm *kubevirt.VirtualMachine, disks ...string) *churning {
	y.T.Helper()
	c := &churning{y: y, vm: vm, disks: disks, ticks: listenTicks(y), blocks: map[string]uint64{}}
	commands := append(c.commands("churn"), "tick "+c.ticks.conn.LocalAddr().String(), "uptime")
	c.uptime(y.AnswersTo(vm, commands...)[len(commands)-1])
	return c
}

// commands are these words to each of the disks.
func (c *churning) commands(verb string) []string {
	var all []string
	for _, disk := range c.disks {
		all = append(all, verb+" serial="+disk)
	}
	return all
}

// uptime reads the guest's answer: it runs for longer than before, and is the same run of its kernel.
func (c *churning) uptime(said string) {
	c.y.T.Helper()
	var up float64
	var run string
	if _, err := fmt.Sscan(said, &up, &run); err != nil {
		c.y.T.Fatalf("uptime %q: %v", said, err)
	}
	if c.run != "" && (up <= c.up || run != c.run) {
		c.y.T.Errorf("the guest was started again: it ran for %.2f s as %s, and now for %.2f s as %s", c.up, c.run, up, run)
	}
	c.up, c.run = up, run
}

// moves: while the guest is moved in the given way it continues to write, and ticks at its new place; it was not started again;
// and its disks hold what it has written, block by block, or what was there before.
func (c *churning) moves(name string, move func()) {
	c.y.T.Helper()
	before := c.ticks.begin()
	began := time.Now()
	move()
	took, during := time.Since(began).Round(time.Second), c.ticks.now()
	var gap time.Duration
	c.y.Wait("the guest to tick where it is", fixture.Patience, func(context.Context) (bool, string) {
		now := c.ticks.now()
		gap = now.gap
		return now.number > during.number, fmt.Sprintf("%+v", now)
	})
	if during.written <= before.written {
		c.y.T.Errorf("%s: the guest wrote nothing while it was moved: %d blocks before, %d after", name, before.written, during.written)
	}
	said := c.y.AnswersTo(c.vm, append(c.commands("compare"), "uptime")...)
	c.uptime(said[len(c.disks)])
	for i, disk := range c.disks {
		var all, written uint64
		if _, err := fmt.Sscanf(said[i], "same %d written %d", &all, &written); err != nil || written <= c.blocks[disk] {
			c.y.T.Errorf("%s: disk %s, which %d blocks were written to before: %s", name, disk, c.blocks[disk], said[i])
		}
		c.blocks[disk] = written
	}
	c.y.T.Logf("%s: in %s the guest wrote %d blocks to %d disks; the longest time between two of its ticks was %s; it compared them: %q",
		name, took, during.written-before.written, len(c.disks), gap.Round(time.Millisecond), said)
}

// ticked is the last tick of a guest.
type ticked struct {
	number, written uint64
	at              time.Time
	gap             time.Duration // the longest between two ticks since begin
}

// ticks hears a guest that says every hundredth of a second that it lives.
type ticks struct {
	conn net.PacketConn
	mu   sync.Mutex
	last ticked
}

func listenTicks(y *fixture.Machines) *ticks {
	y.T.Helper()
	conn, err := net.ListenPacket("udp", net.JoinHostPort(y.HostAddress(), "0"))
	if err != nil {
		y.T.Fatal(err)
	}
	t, ended := &ticks{conn: conn}, make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 64); ; {
			n, _, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			t.hear(string(b[:n]))
		}
	}()
	y.T.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return t
}

// hear takes a tick. One that was overtaken on the way is none.
func (t *ticks) hear(said string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var number, written uint64
	if _, err := fmt.Sscan(said, &number, &written); err != nil || number <= t.last.number {
		return
	}
	now := time.Now()
	if !t.last.at.IsZero() {
		t.last.gap = max(t.last.gap, now.Sub(t.last.at))
	}
	t.last.number, t.last.written, t.last.at = number, written, now
}

// begin forgets how long the guest stood still until now.
func (t *ticks) begin() ticked {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last.gap = 0
	return t.last
}

func (t *ticks) now() ticked {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}
