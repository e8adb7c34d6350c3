package iscsi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// session is one initiator that is logged in, over its one connection.
type session struct {
	target *Target
	conn   net.Conn
	in     *bufio.Reader

	discovery      bool
	segment, burst int

	places  chan struct{} // for commands that are not answered yet
	buffers chan struct{} // for those that are in use
	own     chan struct{} // for the one that is no one else's
	all     sync.WaitGroup

	mu      sync.Mutex // of what follows; a message is written as a whole
	statSN  uint32
	expSN   uint32 // the number of the next command
	running map[uint32]*command
}

// command is a SCSI command that is being carried out.
type command struct {
	*pdu
	s       *session
	lun     int
	aborted bool // guarded by session.mu: nothing is said any more
}

// logIn waits for a login.
func (s *session) logIn() error {
	s.in = bufio.NewReaderSize(s.conn, 16<<10)
	l := &login{target: s.target, segment: longestData, burst: chunk}
	if s.target.Login != nil {
		var err error
		if l.user, l.secret, err = s.target.Login(); err == nil && l.secret == "" {
			err = errors.New("the target's secret is empty")
		}
		if err != nil {
			return fmt.Errorf("login: %w", err)
		}
	}
	for done := false; !done; {
		p, err := read(s.in)
		if err != nil {
			return err
		}
		if p.op() != opLogin {
			return fmt.Errorf("opcode %#x before a login: %w", p.op(), ErrProtocol)
		}
		if l.round == 0 {
			s.expSN = p.cmdSN()
		}
		a, last, err := l.step(p)
		if sendErr := s.send(a); err == nil {
			err = sendErr
		}
		if err != nil {
			return err
		}
		done = last
	}
	s.discovery, s.segment, s.burst = l.discovery, l.segment, l.burst
	return nil
}

// send writes an answer with the numbers that are due.
func (s *session) send(p *pdu) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(p, true)
}

func (s *session) sendLocked(p *pdu, status bool) error {
	p.set(24, 0)
	if status {
		p.set(24, s.statSN)
		s.statSN++
	}
	p.set(28, s.expSN)
	p.set(32, s.expSN+uint32(cap(s.places)-len(s.places))-1)
	if err := s.conn.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if _, err := s.conn.Write(p.bytes()); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

// take reports whether a PDU has to be processed: numbered ones arrive in order, and one out of order is ignored.
func (s *session) take(p *pdu) bool {
	if p.isImmediate() || p.op() == opDataOut {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.cmdSN() != s.expSN {
		return false
	}
	s.expSN++
	return true
}

// serve answers until the initiator leaves.
func (s *session) serve() error {
	for {
		p, err := read(s.in)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("gone without a logout")
			}
			return err
		}
		if !s.take(p) {
			continue
		}
		last, err := s.message(p)
		if err != nil || last {
			return err
		}
	}
}

// message answers one; last says that the session is over.
func (s *session) message(p *pdu) (last bool, err error) {
	switch p.op() {
	case opNopOut:
		if p.tag() == noTag {
			return false, nil // the answer to a question that we do not put
		}
		a := answer(p, opNopIn)
		copy(a.head[8:16], p.lun())
		a.set(20, noTag)
		a.data = p.data[:min(len(p.data), s.segment)]
		return false, s.send(a)
	case opText:
		return false, s.text(p)
	case opLogout:
		return true, s.send(answer(p, opLogoutDone))
	case opTask:
		return false, s.manage(p)
	case opCommand:
		if s.discovery {
			return false, fmt.Errorf("a command in a discovery: %w", ErrProtocol)
		}
		return false, s.command(p)
	case opDataOut:
		return false, nil // belongs to a write, which was refused
	}
	a := answer(p, opReject)
	a.head[2] = 5 // a command that is not supported
	a.set(16, noTag)
	a.data = p.head[:]
	return false, s.send(a)
}

// text answers which targets there are.
func (s *session) text(p *pdu) error {
	kv, err := keys(p.data)
	if err != nil {
		return err
	}
	a := answer(p, opTextDone)
	a.set(20, noTag)
	if which, ok := kv["SendTargets"]; ok && (which == "All" && s.discovery || which == "" || which == s.target.Name) {
		at := s.target.Address
		if at == "" {
			at = s.conn.LocalAddr().String()
		}
		a.data = text("TargetName="+s.target.Name, "TargetAddress="+at+",1")
	}
	return s.send(a)
}

// What is done about commands that run.
const (
	abortTask, abortTaskSet, clearTaskSet, resetLUN, resetWarm, resetCold = 1, 2, 4, 5, 6, 7

	taskDone, taskUnknown, lunUnknown, taskUnsupported = 0, 1, 2, 5
)

// manage aborts commands: an aborted command is never answered.
func (s *session) manage(p *pdu) error {
	a := answer(p, opTaskDone)
	lun, known := number(p.lun())
	known = known && s.target.lun(lun) != nil
	switch function := p.head[1] & 0x7f; {
	case function == abortTask:
		which := p.expected() // at the place of the tag that is referred to
		if s.abort(func(c *command) bool { return c.tag() == which && c.lun == lun }) == 0 {
			a.head[2] = taskUnknown
		}
	case function == resetWarm || function == resetCold:
		s.abort(func(*command) bool { return true })
	case function != abortTaskSet && function != clearTaskSet && function != resetLUN:
		a.head[2] = taskUnsupported
	case !known:
		a.head[2] = lunUnknown
	default:
		s.abort(func(c *command) bool { return c.lun == lun })
	}
	return s.send(a)
}

// abort ends commands and says how many.
func (s *session) abort(which func(*command) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for tag, c := range s.running {
		if which(c) {
			c.aborted = true
			delete(s.running, tag)
			n++
		}
	}
	return n
}

// command carries a command out beside others: a read may wait for its bytes for long, and pings are answered meanwhile.
func (s *session) command(p *pdu) error {
	lun, ok := number(p.lun())
	if !ok {
		lun = -1
	}
	c := &command{pdu: p, s: s, lun: lun}
	select {
	case s.places <- struct{}{}:
	default: // it was told how many there may be
		return c.status(statusTaskSetFull, nil, p.expected())
	}
	s.mu.Lock()
	if s.running[p.tag()] != nil {
		s.mu.Unlock()
		return fmt.Errorf("a tag that is in use: %w", ErrProtocol)
	}
	s.running[p.tag()] = c
	s.mu.Unlock()
	s.all.Go(func() {
		err := c.run()
		s.mu.Lock()
		if s.running[p.tag()] == c {
			delete(s.running, p.tag())
		}
		s.mu.Unlock()
		<-s.places
		if err != nil {
			_ = s.conn.Close() // half of an answer is none
		}
	})
	return nil
}

// say sends a part of the answer unless the command was aborted.
func (c *command) say(p *pdu, status bool) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.aborted {
		return nil
	}
	if status { // before the initiator can use the tag again
		delete(c.s.running, c.tag())
	}
	return c.s.sendLocked(p, status)
}
