package guest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/launch"
)

// quiet holds the guest still, through its agent, while its disks are being copied.
type quiet struct {
	ask   func(command string) error // of the agent
	mu    sync.Mutex
	timer *time.Timer // runs while the guest is held; nil: it never was
	late  bool        // it was not let go in time and went on by itself
}

// serve lets `launcher freeze` and `launcher thaw` in this pod hold the guest, until done is closed.
func (q *quiet) serve(done <-chan struct{}) error { return serve(launch.QuietSocket, done, q.answer) }

func (q *quiet) answer(conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	verb, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	_ = json.NewEncoder(conn).Encode(q.do(strings.TrimSpace(verb)))
}

func (q *quiet) do(verb string) launch.Quiet {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch verb {
	case launch.FreezeVerb:
		return q.freeze()
	case launch.ThawVerb:
		return q.thaw()
	}
	return launch.Quiet{Detail: fmt.Sprintf("%q is neither %s nor %s", verb, launch.FreezeVerb, launch.ThawVerb)}
}

// freeze holds the guest. One that is held already is held for the full time again: whoever asks begins anew.
func (q *quiet) freeze() launch.Quiet {
	if q.timer != nil && q.timer.Stop() {
		q.timer.Reset(launch.MostQuiet)
		return launch.Quiet{Agent: true, Held: true}
	}
	if err := q.ask("guest-fsfreeze-freeze"); err != nil {
		_ = q.ask("guest-fsfreeze-thaw") // it may have done half of it
		return launch.Quiet{Detail: err.Error()}
	}
	q.late = false
	q.timer = time.AfterFunc(launch.MostQuiet, q.giveUp)
	return launch.Quiet{Agent: true, Held: true}
}

func (q *quiet) giveUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.late = true
	_ = q.ask("guest-fsfreeze-thaw")
}

// thaw lets the guest go. Asked again, because the answer got lost, it answers the same.
func (q *quiet) thaw() launch.Quiet {
	if q.timer == nil {
		return launch.Quiet{Agent: true}
	}
	q.timer.Stop()
	if err := q.ask("guest-fsfreeze-thaw"); err != nil {
		return launch.Quiet{Held: !q.late, Detail: err.Error()}
	}
	return launch.Quiet{Agent: true, Held: !q.late}
}

// during does something while the guest is held, and says whether it was. Who holds it already goes on to hold it.
func (q *quiet) during(do func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil && q.timer.Stop() {
		defer q.timer.Reset(launch.MostQuiet)
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
