package decode

import (
	"encoding/binary"
	"errors"
)

// The Data of a gzip state: a version, how many bits of the first byte are used, the member's checksum and size so far, and the
// output that matches may still refer to. A state is always at the beginning of a block.
const (
	gzipStateVersion = 1
	gzipStateHeader  = 10
)

// save makes a state for the position of the decoder, which is between two blocks.
func (g *gunzip) save() {
	g.digest()
	s := &State{Kind: Gzip, In: g.in.off, Out: g.at()}
	g.due = s.Out + g.every
	spent := uint(0)
	if pending := g.d.Pending(); pending > 0 {
		spent = 8 - pending
		s.In--
	}
	window := g.buf[max(g.since, g.op-history):g.op]
	s.Data = make([]byte, gzipStateHeader, gzipStateHeader+len(window))
	s.Data[0], s.Data[1] = gzipStateVersion, byte(spent)
	binary.LittleEndian.PutUint32(s.Data[2:], g.crc)
	binary.LittleEndian.PutUint32(s.Data[6:], g.size)
	s.Data = append(s.Data, window...)
	g.state = s
}

var errState = errors.New("resume a gz stream: the state is not one this version made")

// restore makes the decoder stand where a state was made.
func (g *gunzip) restore(s *State) error {
	if len(s.Data) < gzipStateHeader || s.Data[0] != gzipStateVersion || s.Data[1] > 7 || s.In < 0 || s.Out < 0 {
		return errState
	}
	window := s.Data[gzipStateHeader:]
	if len(window) > history {
		return errState
	}
	g.crc, g.size = binary.LittleEndian.Uint32(s.Data[2:]), binary.LittleEndian.Uint32(s.Data[6:])
	g.out = s.Out
	g.stage, g.begun = atEntry, true
	g.spent, g.window = uint(s.Data[1]), window
	return nil
}

// enter begins in the middle of a member.
func (g *gunzip) enter() error {
	g.d.Reset()
	if g.spent > 0 {
		b, err := g.in.byte()
		if err != nil {
			return g.in.truncated(Gzip, err)
		}
		g.d.Skip(g.spent, b)
	}
	g.stage = inBody
	return nil
}
