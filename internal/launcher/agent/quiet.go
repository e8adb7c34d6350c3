package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// Freezer freezes the guest's filesystems through its agent: while the disks are copied, and for a user.
type Freezer struct {
	ask   func(command string) error // runs a command of the agent
	mu    sync.Mutex
	timer *time.Timer // thaws the guest when it runs out; nil if the guest was never frozen
	late  bool        // the timer ran out before the guest was thawed
	// The guest is frozen for as long as one of the two needs it.
	copies bool      // its disks are being copied
	person time.Time // until when a user has it frozen; zero if no user has
	// tries is how often a thaw that failed is still tried again, and every is the time between. A request that was answered too late may have
	// been carried out, and a guest must not stay frozen.
	tries int
	every time.Duration
	again *time.Timer // the next try; nil if there was none
}

// A thaw that fails is tried again for ten minutes.
const (
	thawEvery = 2 * time.Second
	thawTries = 300
)

// Answer answers one request, to freeze or to thaw the guest.
func (q *Freezer) Answer(conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	verb, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	_ = json.NewEncoder(conn).Encode(q.Do(strings.TrimSpace(verb)))
}

// Do carries out a request.
func (q *Freezer) Do(verb string) launcherapi.Quiet {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch verb {
	case launcherapi.FreezeVerb:
		return q.freeze()
	case launcherapi.ThawVerb:
		return q.thaw()
	}
	return launcherapi.Quiet{Detail: fmt.Sprintf("%q is neither %s nor %s", verb, launcherapi.FreezeVerb, launcherapi.ThawVerb)}
}

// NewFreezer freezes the filesystems of a guest.
func NewFreezer(r Agent) *Freezer {
	return &Freezer{ask: func(command string) error { return r.Query(command, nil) }, every: thawEvery}
}

// freeze freezes the filesystems to copy the disks. If they are frozen already, the time begins again.
func (q *Freezer) freeze() launcherapi.Quiet {
	if err := q.holdFor(max(launcherapi.MostQuiet, time.Until(q.person))); err != nil {
		return launcherapi.Quiet{Detail: err.Error()}
	}
	q.copies = true
	return launcherapi.Quiet{Agent: true, Held: true}
}

// holdFor freezes the filesystems, or keeps them frozen, and thaws them after that time.
func (q *Freezer) holdFor(d time.Duration) error {
	if q.timer != nil && q.timer.Stop() {
		q.timer.Reset(d)
		return nil
	}
	if err := q.ask("guest-fsfreeze-freeze"); err != nil {
		_ = q.release() // some filesystems may be frozen
		return err
	}
	q.late, q.tries = false, 0
	q.timer = time.AfterFunc(d, q.giveUp)
	return nil
}

// giveUp thaws filesystems that were not thawed in time.
func (q *Freezer) giveUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.late, q.copies, q.person = true, false, time.Time{}
	_ = q.release()
}

// release thaws the filesystems. If that fails, it is tried again, unless they are frozen again meanwhile: then they are thawed at the end of that.
func (q *Freezer) release() error {
	q.tries = thawTries
	return q.tryThaw()
}

func (q *Freezer) tryThaw() error {
	err := q.ask("guest-fsfreeze-thaw")
	if err == nil {
		q.tries = 0
		return nil
	}
	if q.again != nil {
		q.again.Stop()
	}
	q.again = time.AfterFunc(q.every, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.tries > 0 {
			q.tries--
			_ = q.tryThaw()
		}
	})
	return err
}

// Hold freezes the filesystems for a user, for that long at most.
func (q *Freezer) Hold(d time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.person
	q.person = time.Now().Add(d)
	if err := q.holdFor(q.wanted()); err != nil {
		q.person = before
		return err
	}
	return nil
}

// wanted returns how long the filesystems stay frozen from now on: until the later of the two deadlines.
func (q *Freezer) wanted() time.Duration {
	d := time.Until(q.person)
	if q.copies {
		d = max(d, launcherapi.MostQuiet)
	}
	return d
}

// Reset records that the guest was reset, so its filesystems are not frozen any more. Who copies the disks gets the answer that they were not
// frozen all the time.
func (q *Freezer) Reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tries = 0
	if q.timer != nil && q.timer.Stop() {
		q.late, q.copies, q.person = true, false, time.Time{}
	}
}

// Unhold thaws filesystems that a user froze. It asks the agent in any case: the guest may have been frozen by another launcher, before it
// moved here.
func (q *Freezer) Unhold() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.person = time.Time{}
	if q.copies && q.timer.Stop() {
		q.timer.Reset(launcherapi.MostQuiet)
		return nil // thaw follows when the disks are copied
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	return q.release()
}

// thaw thaws the filesystems after the disks were copied. A caller that did not get the answer may ask again, and gets the same answer.
func (q *Freezer) thaw() launcherapi.Quiet {
	if q.timer == nil {
		return launcherapi.Quiet{Agent: true}
	}
	q.copies = false
	if left := time.Until(q.person); left > 0 && !q.late {
		if q.timer.Stop() {
			q.timer.Reset(left)
		}
		return launcherapi.Quiet{Agent: true, Held: true}
	}
	q.timer.Stop()
	if err := q.release(); err != nil {
		return launcherapi.Quiet{Held: !q.late, Detail: err.Error()}
	}
	return launcherapi.Quiet{Agent: true, Held: !q.late}
}

// During calls do while the filesystems are frozen, and returns whether they were. Filesystems that were frozen before stay frozen.
func (q *Freezer) During(do func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil && q.timer.Stop() {
		defer func() { q.timer.Reset(q.wanted()) }()
		do()
		return true
	}
	held := q.freeze().Held
	do()
	if !held {
		return false
	}
	return q.thaw().Held
}
