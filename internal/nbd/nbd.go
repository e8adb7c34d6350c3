// Package nbd serves a disk that can only be read over the NBD protocol: as much of it as QEMU needs (fixed newstyle,
// simple replies, any number of connections), on any listener. It is how QEMU reads what it has no good driver for: our
// own reader is behind a socket of the pod.
//
// It knows nothing of where the bytes come from. It writes nothing, so a client that tries is told that it may not. What
// a client sends is bounded before memory is taken for it.
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

// Disk is what is served. It is read by several at once.
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
	infoExport, infoBlockSize  = 0, 3

	flagHasFlags, flagReadOnly, flagMultiConn = 1, 2, 256

	cmdRead, cmdDisconnect, cmdFlush = 0, 2, 3
	cmdWrite                         = 1

	errPermission, errIO, errInvalid = 1, 5, 22
)

// Bounds of what a client may ask for: the longest option (a name has 4 KiB at most), the longest read (what QEMU
// splits larger ones into) and the reads that are carried out at once for one client.
const (
	longestOption = 8 << 10
	longestRead   = 32 << 20
	atOnce        = 16
)

var be = binary.BigEndian

// ErrProtocol is in the error of a client that does not speak the protocol.
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
			_ = Answer(c, d) // a client that goes or talks nonsense harms nobody but itself
		})
	}
}

// Answer serves one client until it leaves. It does not close the connection.
func Answer(c io.ReadWriter, d Disk) error {
	s := &session{in: bufio.NewReaderSize(c, 64<<10), out: c, disk: d}
	if err := s.negotiate(); err != nil {
		return err
	}
	if s.left {
		return nil
	}
	return s.transmit()
}

// session is one client.
type session struct {
	in   *bufio.Reader
	disk Disk
	left bool // the client left during negotiation
	bare bool // it wants no padding after an export's name

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

// option answers one option; done says that requests follow, or nothing does.
func (s *session) option(option uint32, data []byte) (done bool, err error) {
	switch option {
	case optExportName: // every name is this disk's
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
		sizes := be.AppendUint16(nil, infoBlockSize)
		for _, n := range []uint32{1, 64 << 10, longestRead} { // least, liked, most
			sizes = be.AppendUint32(sizes, n)
		}
		return option == optGo, errors.Join(s.reply(option, repInfo, s.export(be.AppendUint16(nil, infoExport))),
			s.reply(option, repInfo, sizes), s.reply(option, repAck, nil))
	}
	return false, s.reply(option, repUnsupported, nil)
}

func (s *session) export(b []byte) []byte {
	b = be.AppendUint64(b, uint64(s.disk.Size()))
	return be.AppendUint16(b, flagHasFlags|flagReadOnly|flagMultiConn)
}

func (s *session) reply(option, kind uint32, data []byte) error {
	b := be.AppendUint64(nil, magicReply)
	b = be.AppendUint32(be.AppendUint32(b, option), kind)
	b = be.AppendUint32(b, uint32(len(data)))
	return s.write(append(b, data...))
}

// transmit answers requests, several at a time.
func (s *session) transmit() error {
	var running sync.WaitGroup
	defer running.Wait()
	places := make(chan struct{}, atOnce)
	for {
		var head [28]byte
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if be.Uint32(head[:]) != magicAsk {
			return fmt.Errorf("request: %w", ErrProtocol)
		}
		command, cookie := be.Uint16(head[6:]), be.Uint64(head[8:])
		off, n := be.Uint64(head[16:]), be.Uint32(head[24:])
		switch command {
		case cmdDisconnect:
			return nil
		case cmdRead:
			places <- struct{}{}
			running.Go(func() {
				_ = s.read(cookie, off, n) // a client that is gone is noticed where requests are read
				<-places
			})
		case cmdFlush: // nothing is ever unwritten
			if err := s.answer(cookie, 0, nil); err != nil {
				return err
			}
		case cmdWrite:
			if _, err := io.CopyN(io.Discard, s.in, int64(n)); err != nil {
				return err
			}
			if err := s.answer(cookie, errPermission, nil); err != nil {
				return err
			}
		default:
			if err := s.answer(cookie, errInvalid, nil); err != nil {
				return err
			}
		}
	}
}

func (s *session) read(cookie, off uint64, n uint32) error {
	size := uint64(s.disk.Size())
	if n > longestRead || off > size || uint64(n) > size-off {
		return s.answer(cookie, errInvalid, nil)
	}
	// The answer's head is in front of the data, so that both are written at once.
	const head = 16
	b := make([]byte, head+int(n))
	if _, err := s.disk.ReadAt(b[head:], int64(off)); err != nil && !errors.Is(err, io.EOF) {
		return s.answer(cookie, errIO, nil)
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
