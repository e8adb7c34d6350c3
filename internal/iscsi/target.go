package iscsi

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/connlimit"
)

// Target is an iSCSI target that initiators log in to.
type Target struct {
	Name string // iqn....
	// Login returns the user and secret that CHAP requires, for discovery too. It is called for each login, so that a secret can
	// be changed. Nil lets every initiator in; an error or an empty secret none.
	Login func() (user, secret string, err error)
	// Address is the address of the target that discovery reports; empty: the address at which the client asked.
	Address string
	// Log gets connections and why they ended; nil: no log.
	Log func(format string, args ...any)

	mu   sync.RWMutex
	luns map[int]*LUN

	once    sync.Once
	room    *connlimit.Room
	buffers chan struct{} // and for each buffer that is in use
}

// Put makes l the LUN of a number, in the place of another that may have been there.
func (t *Target) Put(number int, l *LUN) error {
	if number < 0 || number >= mostLUNs {
		return fmt.Errorf("LUN %d: there are those from 0 to %d", number, mostLUNs-1)
	}
	if len(l.ID) > longestID || l.Disk.Size() <= 0 {
		return fmt.Errorf("LUN %d: an empty disk, or an identity of more than %d characters", number, longestID)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.luns == nil {
		t.luns = map[int]*LUN{}
	}
	t.luns[number] = l
	return nil
}

// Remove takes a LUN away. Reads of it that are under way are answered.
func (t *Target) Remove(number int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.luns, number)
}

func (t *Target) lun(number int) *LUN {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.luns[number]
}

func (t *Target) numbers() []int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []int
	for n := range mostLUNs {
		if t.luns[n] != nil {
			out = append(out, n)
		}
	}
	return out
}

func (t *Target) log(format string, args ...any) {
	if t.Log != nil {
		t.Log(format, args...)
	}
}

func (t *Target) begin() {
	t.once.Do(func() { t.room, t.buffers = connlimit.NewRoom(connections), make(chan struct{}, buffers) })
}

// Serve answers every initiator that connects to l until l is closed, and waits for those that are connected, whose connections it closes.
func (t *Target) Serve(l net.Listener) error {
	t.begin()
	refused := func(c net.Conn) { t.log("%s: refused: there are %d connections", c.RemoteAddr(), connections) }
	err := connlimit.Serve(l, t.room, refused, func(c net.Conn, admit func()) {
		if err := t.answer(c, admit); err != nil {
			t.log("%s: %v", c.RemoteAddr(), err)
		}
	})
	if err != nil {
		return fmt.Errorf("serve iSCSI initiators: %w", err)
	}
	return nil
}

// Answer serves one initiator until it leaves; nil says that it logged out. It does not close the connection.
func (t *Target) Answer(c net.Conn) error { return t.answer(c, func() {}) }

func (t *Target) answer(c net.Conn, admit func()) error {
	t.begin()
	if err := c.SetReadDeadline(time.Now().Add(loginPatience)); err != nil {
		return fmt.Errorf("wait for a login: %w", err)
	}
	s := &session{target: t, conn: c, running: map[uint32]*command{}, places: make(chan struct{}, commands),
		buffers: make(chan struct{}, ownBuffers), own: make(chan struct{}, 1)}
	if err := s.logIn(); err != nil {
		return err
	}
	admit()
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for commands: %w", err)
	}
	err := s.serve()
	s.abort(func(*command) bool { return true }) // answers to reads in progress are not sent any more
	s.all.Wait()
	return err
}
