package iscsi

import (
	"errors"
	"io"
)

// Commands of SCSI that are known here.
const (
	cmdTestUnitReady, cmdRequestSense, cmdRead6, cmdInquiry, cmdModeSense6, cmdStartStop, cmdPreventRemoval = 0x00, 0x03, 0x08, 0x12, 0x1a, 0x1b, 0x1e
	cmdReadCapacity10, cmdRead10, cmdPrefetch10, cmdSync10, cmdModeSense10                                  = 0x25, 0x28, 0x34, 0x35, 0x5a
	cmdRead16, cmdPrefetch16, cmdSync16, cmdServiceIn16, cmdReportLUNs, cmdRead12                           = 0x88, 0x90, 0x91, 0x9e, 0xa0, 0xa8
	serviceReadCapacity16                                                                                   = 0x10
)

// writes are the commands that change the disk; they are answered with "write protected".
var writes = map[byte]bool{
	0x04: true, 0x07: true, 0x0a: true, 0x2a: true, 0x2e: true, 0x3b: true, 0x41: true, 0x42: true, 0x53: true, 0x89: true, 0x8a: true, 0x8e: true, 0x93: true, 0x9c: true,
	0xaa: true, 0xae: true,
}

const (
	statusGood, statusCheck, statusBusy, statusTaskSetFull = 0x00, 0x02, 0x08, 0x28
)

// sense is why a command failed: key, code and qualifier.
type sense [3]byte

var (
	senseMedium      = sense{3, 0x11, 0}
	senseUnknown     = sense{5, 0x20, 0}
	senseOutOfRange  = sense{5, 0x21, 0}
	senseField       = sense{5, 0x24, 0}
	senseNoLUN       = sense{5, 0x25, 0}
	senseWriteShield = sense{7, 0x27, 0}
)

// number returns the LUN that eight bytes name, of those with one level.
func number(b []byte) (int, bool) {
	for _, rest := range b[2:8] {
		if rest != 0 {
			return 0, false
		}
	}
	switch b[0] >> 6 {
	case 0: // peripheral: bus and number
		return int(b[1]), b[0] == 0
	case 1: // flat
		return int(b[0]&0x3f)<<8 | int(b[1]), true
	}
	return 0, false
}

// status ends a command.
func (c *command) status(code byte, senseData []byte, residual uint32) error {
	a := answer(c.pdu, opResponse)
	a.head[3] = code
	if residual > 0 {
		a.head[1] |= 2 // less than expected
		a.set(44, residual)
	}
	if senseData != nil {
		a.data = append([]byte{0, byte(len(senseData))}, senseData...)
	}
	return c.say(a, true)
}

func (s sense) data() []byte {
	b := make([]byte, 18)
	b[0], b[2], b[7], b[12], b[13] = 0x70, s[0], 10, s[1], s[2]
	return b
}

func (c *command) check(s sense) error { return c.status(statusCheck, s.data(), c.expected()) }

// reply sends what a command answers with, at most as much as the initiator has room for.
func (c *command) reply(b []byte, allocated uint32) error {
	b = b[:min(uint64(len(b)), uint64(allocated))]
	room := c.expected()
	o := &outgoing{command: c, left: min(uint64(len(b)), uint64(room))}
	if err := o.send(b[:o.left]); err != nil {
		return err
	}
	return c.end(uint64(len(b)))
}

// end says that a command that had n bytes to say is done.
func (c *command) end(n uint64) error {
	room := uint64(c.expected())
	if n <= room {
		return c.status(statusGood, nil, uint32(room-n))
	}
	a := answer(c.pdu, opResponse)
	a.head[1] |= 4 // more than expected
	a.set(44, uint32(min(n-room, 1<<32-1)))
	return c.say(a, true)
}

// outgoing is the data of one command on its way.
type outgoing struct {
	*command
	left   uint64 // bytes that are still to be sent
	off    uint64
	number uint32
	burst  int // sent in this sequence
}

// send cuts data into messages that the initiator takes.
func (o *outgoing) send(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), o.s.segment, o.s.burst-o.burst)
		a := answer(o.pdu, opDataIn)
		copy(a.head[8:16], o.pdu.lun())
		a.set(20, noTag)
		a.set(36, o.number)
		a.set(40, uint32(o.off))
		a.data = b[:n]
		b, o.off, o.left, o.burst = b[n:], o.off+uint64(n), o.left-uint64(n), o.burst+n
		a.head[1] = 0
		if o.left == 0 || o.burst == o.s.burst {
			a.head[1], o.burst = final, 0
		}
		o.number++
		if err := o.say(a, false); err != nil {
			return err
		}
	}
	return nil
}

// run carries a command out and answers it.
func (c *command) run() error {
	cdb := c.cdb()
	if cdb[0] == cmdReportLUNs {
		return c.reportLUNs()
	}
	l := c.s.target.lun(c.lun)
	if l == nil {
		if cdb[0] == cmdInquiry && cdb[1]&1 == 0 { // no device, and there could be none
			return c.reply(append([]byte{0x7f, 0, 5, 2, 31}, make([]byte, 31)...), uint32(be.Uint16(cdb[3:])))
		}
		return c.check(senseNoLUN)
	}
	switch cdb[0] {
	case cmdTestUnitReady, cmdStartStop, cmdPreventRemoval:
		return c.status(statusGood, nil, c.expected())
	case cmdRequestSense:
		return c.reply(sense{}.data(), uint32(cdb[4]))
	case cmdInquiry:
		return c.inquiry(l)
	case cmdReadCapacity10:
		return c.readCapacity10(l)
	case cmdServiceIn16:
		return c.readCapacity16(l)
	case cmdModeSense6, cmdModeSense10:
		return c.modeSense(cdb)
	case cmdSync10, cmdSync16, cmdPrefetch10, cmdPrefetch16:
		return c.touch(l)
	case cmdRead6, cmdRead10, cmdRead12, cmdRead16:
		return c.read(l)
	}
	if writes[cdb[0]] {
		return c.check(senseWriteShield)
	}
	return c.check(senseUnknown)
}

// span returns which blocks a command is about.
func span(cdb []byte) (at, n uint64) {
	switch cdb[0] {
	case cmdRead6:
		if at, n = uint64(cdb[1]&31)<<16|uint64(be.Uint16(cdb[2:])), uint64(cdb[4]); n == 0 {
			n = 256
		}
	case cmdRead10, cmdSync10, cmdPrefetch10:
		at, n = uint64(be.Uint32(cdb[2:])), uint64(be.Uint16(cdb[7:]))
	case cmdRead12:
		at, n = uint64(be.Uint32(cdb[2:])), uint64(be.Uint32(cdb[6:]))
	case cmdRead16, cmdSync16, cmdPrefetch16:
		at, n = be.Uint64(cdb[2:]), uint64(be.Uint32(cdb[10:]))
	}
	return at, n
}

// within reports whether the disk has all of these blocks. The block after the last is not on the disk, even for an empty range.
func (l *LUN) within(at, n uint64) bool {
	all := l.blocks()
	return at < all && n <= all-at
}

// touch answers commands about blocks that need no data transfer.
func (c *command) touch(l *LUN) error {
	if at, n := span(c.cdb()); !l.within(at, n) {
		return c.check(senseOutOfRange)
	}
	return c.status(statusGood, nil, c.expected())
}

// read sends blocks, in chunks: a long command takes no more memory than a short one.
func (c *command) read(l *LUN) error {
	cdb := c.cdb()
	if cdb[0] != cmdRead6 && cdb[1]&0xe0 != 0 {
		return c.check(senseField) // blocks have no protection here
	}
	at, n := span(cdb)
	switch {
	case !l.within(at, n):
		return c.check(senseOutOfRange)
	case n*blockSize > longestRead:
		return c.check(senseField)
	}
	wanted := n * blockSize
	o := &outgoing{command: c, left: min(wanted, uint64(c.expected()))}
	for o.left > 0 {
		if done, err := c.part(l, o, int64(at*blockSize+o.off)); done || err != nil {
			return err
		}
	}
	return c.end(wanted)
}

// buffer waits for a buffer, shared or the session's own, and returns what gives it back. Those who do not read their answers can hold all that are shared.
func (s *session) buffer() func() {
	select {
	case s.target.buffers <- struct{}{}:
		return func() { <-s.target.buffers }
	default:
	}
	select {
	case s.target.buffers <- struct{}{}:
		return func() { <-s.target.buffers }
	case s.own <- struct{}{}:
		return func() { <-s.own }
	}
}

// part reads and sends the next chunk; done says that the command was answered with an error instead.
func (c *command) part(l *LUN, o *outgoing, at int64) (done bool, err error) {
	c.s.buffers <- struct{}{}
	defer func() { <-c.s.buffers }()
	defer c.s.buffer()()
	b := make([]byte, min(o.left, chunk))
	n, err := l.Disk.ReadAt(b, at)
	switch {
	// The last block may be longer than the disk. An error that only has an end in it would be answered with zeroes.
	case err == nil && n == len(b), errors.Is(err, io.EOF) && at+int64(n) >= l.Disk.Size():
		clear(b[n:])
		return false, o.send(b)
	case errors.Is(err, ErrBusy):
		c.s.target.log("LUN %d, %d bytes at %d: %v", c.lun, len(b), at, err)
		return true, c.status(statusBusy, nil, uint32(uint64(c.expected())-o.off))
	}
	c.s.target.log("LUN %d, %d bytes at %d: %v", c.lun, len(b), at, err)
	return true, c.status(statusCheck, senseMedium.data(), uint32(uint64(c.expected())-o.off))
}
