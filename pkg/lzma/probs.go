package lzma

// probs are the probabilities that adapt as a stream is decoded. Arrays are powers of two where that saves a check.
type probs struct {
	isMatch  [16][16]uint16
	isRep    [16]uint16
	isRepG0  [16]uint16
	isRepG1  [16]uint16
	isRepG2  [16]uint16
	rep0Long [16][16]uint16
	slot     [4][64]uint16
	special  [128]uint16
	align    [16]uint16
	length   lengths
	repLen   lengths
	literal  [0x300 << 4]uint16
}

type lengths struct {
	choice  uint16
	choice2 uint16
	low     [16][8]uint16
	mid     [16][8]uint16
	high    [256]uint16
}

const half = 1 << 10 // as likely as not

func (p *probs) reset(literalBits uint) {
	for i := range p.isMatch {
		set(p.isMatch[i][:])
		set(p.rep0Long[i][:])
	}
	set(p.isRep[:])
	set(p.isRepG0[:])
	set(p.isRepG1[:])
	set(p.isRepG2[:])
	for i := range p.slot {
		set(p.slot[i][:])
	}
	set(p.special[:])
	set(p.align[:])
	p.length.reset()
	p.repLen.reset()
	set(p.literal[:0x300<<literalBits])
}

func (l *lengths) reset() {
	l.choice, l.choice2 = half, half
	for i := range l.low {
		set(l.low[i][:])
		set(l.mid[i][:])
	}
	set(l.high[:])
}

func set(p []uint16) {
	for i := range p {
		p[i] = half
	}
}
