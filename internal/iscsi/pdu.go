package iscsi

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Opcodes, those of initiators first.
const (
	opNopOut, opCommand, opTask, opLogin, opText, opDataOut, opLogout                = 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
	opNopIn, opResponse, opTaskDone, opLoginDone, opTextDone, opDataIn, opLogoutDone = 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26
	opReject                                                                         = 0x3f
)

const (
	headSize  = 48
	noTag     = 0xffffffff
	final     = 0x80
	immediate = 0x40
)

// ErrProtocol is wrapped by the errors of an initiator that violates the protocol.
var ErrProtocol = errors.New("not the iSCSI protocol")

// pdu is a message: its head, which has the same fields in most of them, and its data.
type pdu struct {
	head [headSize]byte
	data []byte
}

func (p *pdu) op() byte             { return p.head[0] & 0x3f }
func (p *pdu) isImmediate() bool    { return p.head[0]&immediate != 0 }
func (p *pdu) tag() uint32          { return be.Uint32(p.head[16:]) }
func (p *pdu) cmdSN() uint32        { return be.Uint32(p.head[24:]) }
func (p *pdu) lun() []byte          { return p.head[8:16] }
func (p *pdu) expected() uint32     { return be.Uint32(p.head[20:]) }
func (p *pdu) cdb() []byte          { return p.head[32:48] }
func (p *pdu) set(at int, n uint32) { be.PutUint32(p.head[at:], n) }

// read reads one message. Additional headers are read over: what they are for (long commands, data in both directions) is not served.
func read(r io.Reader) (*pdu, error) {
	p := &pdu{}
	if _, err := io.ReadFull(r, p.head[:]); err != nil {
		return nil, err
	}
	more, n := int(p.head[4])*4, int(p.head[5])<<16|int(p.head[6])<<8|int(p.head[7])
	if n > longestData {
		return nil, fmt.Errorf("a message with %d bytes of data: %w", n, ErrProtocol)
	}
	b := make([]byte, more+padded(n))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	p.data = b[more : more+n]
	return p, nil
}

func padded(n int) int { return (n + 3) &^ 3 }

// answer begins a message that answers p.
func answer(p *pdu, op byte) *pdu {
	a := &pdu{}
	a.head[0], a.head[1] = op, final
	copy(a.head[16:20], p.head[16:20])
	return a
}

// bytes returns the message as it is sent.
func (p *pdu) bytes() []byte {
	n := len(p.data)
	p.head[5], p.head[6], p.head[7] = byte(n>>16), byte(n>>8), byte(n)
	b := make([]byte, headSize+padded(n))
	copy(b, p.head[:])
	copy(b[headSize:], p.data)
	return b
}

// keys reads the text of a negotiation. The first value of a key counts: that it comes twice is an error of the initiator.
func keys(b []byte) (map[string]string, error) {
	m := map[string]string{}
	for part := range strings.SplitSeq(string(b), "\x00") {
		if part == "" {
			continue
		}
		k, v, ok := strings.Cut(part, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%q in a negotiation: %w", part, ErrProtocol)
		}
		if _, twice := m[k]; twice || len(m) == mostKeys {
			return nil, fmt.Errorf("the key %q comes twice, or there are more than %d: %w", k, mostKeys, ErrProtocol)
		}
		m[k] = v
	}
	return m, nil
}

// text returns the other way round.
func text(pairs ...string) []byte {
	if len(pairs) == 0 {
		return nil
	}
	return []byte(strings.Join(pairs, "\x00") + "\x00")
}
