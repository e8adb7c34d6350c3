// Package nbd serves a disk over the NBD protocol: as much of it as QEMU needs (fixed newstyle, simple replies, any number of
// connections), on any listener. QEMU uses it for disks that it has no good driver for: those of our own reader, or a disk that is
// still being filled.
//
// It does not know where the bytes are. A disk that is no Writer is read-only: writes get an error. The size of a client's data is
// checked before memory is allocated for it.
package nbd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Disk is the served disk. It is read concurrently. A Disk that is also a Writer is writable.
type Disk interface {
	io.ReaderAt
	Size() int64
}

// Numbers of the protocol, as its specification names them.
const (
	magicOption = 0x49484156454f5054 // IHAVEOPT
	magicReply  = 0x0003e889045565a9
	magicAsk    = 0x25609513
	magicAnswer = 0x67446698

	handshakeFixed, handshakeNoZeroes = 1, 2

	optExportName, optAbort, optList, optInfo, optGo = 1, 2, 3, 6, 7

	repAck, repServer, repInfo = 1, 2, 3
	repUnsupported             = 1<<31 | 1
	repInvalid                 = 1<<31 | 3
	repUnknown                 = 1<<31 | 6
	infoExport, infoBlockSize  = 0, 3

	flagHasFlags, flagReadOnly, flagFlush, flagFUA, flagZeroes, flagMultiConn = 1, 2, 4, 8, 64, 256

	cmdRead, cmdWrite, cmdDisconnect, cmdFlush, cmdZeroes = 0, 1, 2, 3, 6

	errPermission, errIO, errInvalid, errNoSpace = 1, 5, 22, 28
)

// Bounds of what a client may ask for: the longest option (a name has 4 KiB at most), the longest read (what QEMU splits larger
// ones into) and the requests that are carried out at once for one client. A server of a writable disk has less memory: it is a
// worker that fills the disk.
const (
	longestOption = 8 << 10
	longestRead   = 32 << 20
	longestWrite  = 1 << 20
	atOnce        = 16
)

var be = binary.BigEndian

// ErrProtocol is wrapped by the errors of a client that violates the protocol.
var ErrProtocol = errors.New("not the NBD protocol")

// Serve answers every client that connects to l until l is closed, and waits for those that are connected.
func Serve(l net.Listener, d Disk) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for NBD clients: %w", err)
		}
		clients.Go(func() {
			defer func() { _ = c.Close() }()
			_ = Answer(c, d) // a client that leaves or sends nonsense harms only itself
		})
	}
}

// ErrGone is returned by Answer for a client that left without disconnecting: it may come back.
var ErrGone = errors.New("the client went without a word")

// Answer serves one client until it leaves. It does not close the connection.
func Answer(c io.ReadWriter, d Disk) error {
	s := newSession(c, d)
	if err := s.negotiate(); err != nil {
		return err
	}
	if s.left {
		return nil
	}
	return s.transmit()
}

func newSession(c io.ReadWriter, d Disk) *session {
	s := &session{in: bufio.NewReaderSize(c, 64<<10), out: c, disk: d, longest: longestRead, places: make(chan struct{}, atOnce), own: make(chan struct{}, 1)}
	s.lookup = func(string) Disk { return d } // every name is this disk's
	if w, ok := d.(Writer); ok {
		s.to, s.longest = w, longestWrite
	}
	return s
}

// session is one client.
type session struct {
	in      *bufio.Reader
	lookup  func(name string) Disk
	disk    Disk          // that the client has chosen
	to      Writer        // the disk if it may be written to, nil otherwise
	longest uint32        // read or write
	left    bool          // the client left during negotiation
	bare    bool          // it wants no padding after an export's name
	places  chan struct{} // for the client's requests
	// shared are places for the requests of all clients; nil: no one else is served. Who gets none of them has own, for one
	// request at a time.
	shared, own chan struct{}

	mu  sync.Mutex // of out: an answer is written as a whole
	out io.Writer
}

func (s *session) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.out.Write(b)
	return err
}

func (s *session) negotiate() error {
	hello := be.AppendUint64([]byte("NBDMAGIC"), magicOption)
	if err := s.write(be.AppendUint16(hello, handshakeFixed|handshakeNoZeroes)); err != nil {
		return err
	}
	var flags [4]byte
	if _, err := io.ReadFull(s.in, flags[:]); err != nil {
		return err
	}
	s.bare = be.Uint32(flags[:])&handshakeNoZeroes != 0
	for {
		var head [16]byte
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			return err
		}
		option, n := be.Uint32(head[8:]), be.Uint32(head[12:])
		if be.Uint64(head[:]) != magicOption || n > longestOption {
			return fmt.Errorf("option of %d bytes: %w", n, ErrProtocol)
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(s.in, data); err != nil {
			return err
		}
		if done, err := s.option(option, data); err != nil || done {
			return err
		}
	}
}

// option answers one option; done reports whether the negotiation has ended.
func (s *session) option(option uint32, data []byte) (done bool, err error) {
	switch option {
	case optExportName:
		if s.disk = s.lookup(string(data)); s.disk == nil {
			return false, fmt.Errorf("there is no such export: %w", ErrProtocol) // there is no answer that says so
		}
		b := s.export(nil)
		if !s.bare {
			b = append(b, make([]byte, 124)...)
		}
		return true, s.write(b)
	case optAbort:
		s.left = true
		return true, s.reply(option, repAck, nil)
	case optList:
		return false, errors.Join(s.reply(option, repServer, make([]byte, 4)), s.reply(option, repAck, nil))
	case optInfo, optGo:
		if len(data) < 6 || uint64(be.Uint32(data))+6 > uint64(len(data)) {
			return false, s.reply(option, repInvalid, nil)
		}
		if s.disk = s.lookup(string(data[4 : 4+be.Uint32(data)])); s.disk == nil {
			return false, s.reply(option, repUnknown, nil)
		}
		sizes := be.AppendUint16(nil, infoBlockSize)
		for _, n := range []uint32{1, 64 << 10, s.longest} { // least, liked, most
			sizes = be.AppendUint32(sizes, n)
		}
		return option == optGo, errors.Join(s.reply(option, repInfo, s.export(be.AppendUint16(nil, infoExport))),
			s.reply(option, repInfo, sizes), s.reply(option, repAck, nil))
	}
	return false, s.reply(option, repUnsupported, nil)
}

func (s *session) export(b []byte) []byte {
	flags := uint16(flagHasFlags | flagReadOnly | flagMultiConn)
	if s.to != nil {
		flags = flagHasFlags | flagFlush | flagFUA | flagZeroes | flagMultiConn // a flush is of what all connections wrote
	}
	return be.AppendUint16(be.AppendUint64(b, uint64(s.disk.Size())), flags)
}

func (s *session) reply(option, kind uint32, data []byte) error {
	b := be.AppendUint64(nil, magicReply)
	b = be.AppendUint32(be.AppendUint32(b, option), kind)
	b = be.AppendUint32(b, uint32(len(data)))
	return s.write(append(b, data...))
}

// request is a client's request.
type request struct {
	flags, command uint16
	cookie, off    uint64
	n              uint32
	data           []byte // to be written
}

// transmit answers requests, several at a time.
func (s *session) transmit() error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		var head [28]byte
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return ErrGone
			}
			return err
		}
		if be.Uint32(head[:]) != magicAsk {
			return fmt.Errorf("request: %w", ErrProtocol)
		}
		r := request{flags: be.Uint16(head[4:]), command: be.Uint16(head[6:]), cookie: be.Uint64(head[8:]), off: be.Uint64(head[16:]), n: be.Uint32(head[24:])}
		if r.command == cmdDisconnect {
			return nil
		}
		if err := s.take(&r); err != nil {
			return err
		}
		running.Go(func() {
			defer func() { <-s.places }()
			defer s.room()()
			_ = s.do(r) // a client that is gone is noticed where requests are read
		})
	}
}

// take waits for a free slot before memory is allocated for a write. A request that cannot be written is discarded before that,
// so a slow sender does not occupy a slot.
func (s *session) take(r *request) error {
	if s.to == nil {
		err := s.payload(r)
		if err == nil {
			s.places <- struct{}{}
		}
		return err
	}
	s.places <- struct{}{}
	err := s.payload(r)
	if err != nil {
		<-s.places
	}
	return err
}

// room waits for a place among the requests of all clients, or for the client's own, and returns what gives it back.
func (s *session) room() func() {
	if s.shared == nil {
		return func() {}
	}
	select {
	case s.shared <- struct{}{}:
		return func() { <-s.shared }
	default:
	}
	select {
	case s.shared <- struct{}{}:
		return func() { <-s.shared }
	case s.own <- struct{}{}:
		return func() { <-s.own }
	}
}

// do carries out a request and answers it.
func (s *session) do(r request) error {
	switch r.command {
	case cmdRead:
		return s.read(r.cookie, r.off, r.n)
	case cmdFlush:
		return s.answer(r.cookie, s.flush(), nil)
	case cmdWrite, cmdZeroes:
		return s.answer(r.cookie, s.change(r), nil)
	}
	return s.answer(r.cookie, errInvalid, nil)
}

// outside reports whether the request reaches beyond the disk.
func (s *session) outside(off uint64, n uint32) bool {
	size := uint64(s.disk.Size())
	return off > size || uint64(n) > size-off
}

func (s *session) read(cookie, off uint64, n uint32) error {
	if n > s.longest || s.outside(off, n) {
		return s.answer(cookie, errInvalid, nil)
	}
	// The answer's head is in front of the data, so that both are written at once.
	const head = 16
	b := make([]byte, head+int(n))
	// A reader may say that it is at its end, if it is: an error that only has an end in it would be answered with zeroes.
	got, err := s.disk.ReadAt(b[head:], int64(off))
	if err != nil && (!errors.Is(err, io.EOF) || int64(off)+int64(got) < s.disk.Size()) {
		return s.answer(cookie, code(err), nil)
	}
	return s.answer(cookie, 0, b)
}

// answer writes an answer; b is nil or has room for the answer's head in front of the data.
func (s *session) answer(cookie uint64, code uint32, b []byte) error {
	if b == nil {
		b = make([]byte, 16)
	}
	be.PutUint32(b, magicAnswer)
	be.PutUint32(b[4:], code)
	be.PutUint64(b[8:], cookie)
	return s.write(b)
}
