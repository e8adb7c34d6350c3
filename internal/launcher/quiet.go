package launcher

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

// quiet holds the guest still, through its agent, while its disks are being copied.
type quiet struct {
	ask   func(command string) error // of the agent
	mu    sync.Mutex
	timer *time.Timer // runs while the guest is held; nil: it never was
	late  bool        // it was not let go in time and went on by itself
	// A guest is held for as long as one of the two wants it: what copies its disks, and a person.
	copies bool      // something copies its disks
	person time.Time // until when a person holds it; zero: none does
}

// serve lets `launcher freeze` and `launcher thaw` in this pod hold the guest, until done is closed.
func (q *quiet) serve(done <-chan struct{}) error {
	return serve(launcherapi.QuietSocket, done, q.answer)
}

func (q *quiet) answer(conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	verb, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	_ = json.NewEncoder(conn).Encode(q.do(strings.TrimSpace(verb)))
}

func (q *quiet) do(verb string) launcherapi.Quiet {
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

// freeze freezes the guest's filesystems. A frozen guest is frozen for the full time again: the caller begins again.
func (q *quiet) freeze() launcherapi.Quiet {
	if err := q.holdFor(max(launcherapi.MostQuiet, time.Until(q.person))); err != nil {
		return launcherapi.Quiet{Detail: err.Error()}
	}
	q.copies = true
	return launcherapi.Quiet{Agent: true, Held: true}
}

// holdFor freezes the guest, or has one that is frozen stay so, and thaws it after that time.
func (q *quiet) holdFor(d time.Duration) error {
	if q.timer != nil && q.timer.Stop() {
		q.timer.Reset(d)
		return nil
	}
	if err := q.ask("guest-fsfreeze-freeze"); err != nil {
		_ = q.ask("guest-fsfreeze-thaw") // it may have done half of it
		return err
	}
	q.late = false
	q.timer = time.AfterFunc(d, q.giveUp)
	return nil
}

func (q *quiet) giveUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.late, q.copies, q.person = true, false, time.Time{}
	_ = q.ask("guest-fsfreeze-thaw")
}

// hold holds the guest for a person, for that long at most.
func (q *quiet) hold(d time.Duration) error {
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

// wanted returns for how long the guest stays frozen from now on: until the later of the two deadlines.
func (q *quiet) wanted() time.Duration {
	d := time.Until(q.person)
	if q.copies {
		d = max(d, launcherapi.MostQuiet)
	}
	return d
}

// reset: the guest begins again, and is not held any more. What copies its disks is told so.
func (q *quiet) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil && q.timer.Stop() {
		q.late, q.copies, q.person = true, false, time.Time{}
	}
}

// unhold ends a person's hold. The agent is asked in any case: the guest may have been frozen before it came to this launcher.
func (q *quiet) unhold() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.person = time.Time{}
	if q.copies && q.timer.Stop() {
		q.timer.Reset(launcherapi.MostQuiet)
		return nil // it is thawed when that is done
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	return q.ask("guest-fsfreeze-thaw")
}

// thaw lets the guest go. Asked again, because the answer got lost, it answers the same.
func (q *quiet) thaw() launcherapi.Quiet {
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
	if err := q.ask("guest-fsfreeze-thaw"); err != nil {
		return launcherapi.Quiet{Held: !q.late, Detail: err.Error()}
	}
	return launcherapi.Quiet{Agent: true, Held: !q.late}
}

// during does something while the guest is held, and says whether it was. Who holds it already goes on to hold it.
func (q *quiet) during(do func()) bool {
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
