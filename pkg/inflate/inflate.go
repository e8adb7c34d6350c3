// Package inflate undoes deflate (RFC 1951) and zlib (RFC 1950) between buffers. It is made for what disk images have:
// clusters of known size that are compressed one by one, and one long stream whose output is taken in large pieces. Both
// know where input and output end, so nothing is moved a byte at a time and no call is made per symbol.
//
// It knows neither gzip's header (internal/transfer/decode does) nor disk formats. It does not allocate, and does not use unsafe:
// invalid input only causes an error. It accepts exactly what compress/flate accepts.
package inflate

// Error says what is wrong with a stream.
type Error string

func (e Error) Error() string { return string(e) }

// The errors. Full is none if the caller wanted no more than the output it gave room for.
const (
	Full      Error = "there is more output than there is room for"
	Truncated Error = "the stream ends in the middle"

	BadBlock    Error = "a block of unknown type"
	BadStored   Error = "a stored block contradicts its own length"
	BadLengths  Error = "a table of code lengths makes no sense"
	BadCode     Error = "a code that is not in its table"
	BadDistance Error = "a distance reaches back before the beginning"
	BadHeader   Error = "not a zlib header"
	BadSum      Error = "the checksum does not match"
)

// Status is why Decode returned.
type Status uint8

// The statuses. At NeedInput and NeedOutput Decode is to be called again with more of it.
const (
	Failed     Status = iota
	NeedInput         // what is left of src is too little to continue with
	NeedOutput        // what is left of dst may be too little, by 257 bytes at most
	Block             // a block ended and another one follows
	Done              // the last block ended
	goOn              // inside only: the phase changed
)

type phase uint8

const (
	atHeader phase = iota
	inStored
	inCodes
	atEnd
)

// Decoder decodes one stream at a time. The zero value is ready for the first, Reset makes it so for the next one. It is
// large (26 KiB) and meant to be kept.
type Decoder struct {
	own  tables
	pre  [preSize]uint32
	lens [litCodes + distCodes]uint8

	bits   uint64 // of the stream, the next one lowest
	nbits  uint   // how many; between calls fewer than 8
	phase  phase
	final  bool // this block is the last
	fixed  bool // the block uses the fixed tables
	stored int  // bytes left of a stored block
	want   int  // what a match at the end of dst would have written; its distance
	back   int
}

// Reset makes d ready for another stream.
func (d *Decoder) Reset() {
	d.bits, d.nbits, d.phase, d.final, d.stored, d.want = 0, 0, atHeader, false, 0, 0
}

// Skip drops n bits, fewer than 8, of the first byte of a stream that is entered at a block's beginning.
func (d *Decoder) Skip(n uint, first byte) {
	d.Reset()
	if n > 0 {
		d.bits, d.nbits = uint64(first)>>n, 8-n
	}
}

// Pending returns how many bits, fewer than 8, of the last byte consumed are not yet decoded.
func (d *Decoder) Pending() uint { return d.nbits }

// Inflate decodes the one stream at the front of src into dst, which has no history. It says how much of each it used. With Full,
// dst is full and the stream continues.
func (d *Decoder) Inflate(dst, src []byte) (n, consumed int, err error) {
	d.Reset()
	for {
		m, used, status, err := d.Decode(dst, n, src[consumed:], true)
		n, consumed = m, consumed+used
		switch status {
		case Done:
			return n, consumed, nil
		case NeedOutput:
			for ; n < len(dst) && d.want > 0; n++ { // the part that fits of the match that does not
				dst[n] = dst[n-d.back]
			}
			return n, consumed, Full
		case NeedInput:
			return n, consumed, Truncated
		case Failed:
			return n, consumed, err
		case Block, goOn:
		}
	}
}

// Zlib is Inflate for a stream with zlib's header and checksum. With Full the checksum is not looked at.
func (d *Decoder) Zlib(dst, src []byte) (n, consumed int, err error) {
	if len(src) < 2 {
		return 0, 0, Truncated
	}
	// Method 8 with a window of at most 32 KiB, the check bits right, and no preset dictionary.
	if src[0]&0x0f != 8 || src[0]>>4 > 7 || (uint(src[0])<<8|uint(src[1]))%31 != 0 || src[1]&0x20 != 0 {
		return 0, 0, BadHeader
	}
	n, consumed, err = d.Inflate(dst, src[2:])
	consumed += 2
	if err != nil {
		return n, consumed, err
	}
	if err = adler(dst[:n], src[consumed:]); err == nil {
		consumed += 4
	}
	return n, consumed, err
}

// Decode continues with a stream. It writes behind dst[:op], which is the history that matches may reach back to, and says how far
// it wrote and how much of src it used. With last set, src holds the end of the stream. After Block the decoder is at a place from
// which another one can continue: see Pending and Skip.
func (d *Decoder) Decode(dst []byte, op int, src []byte, last bool) (int, int, Status, error) {
	ip := 0
	for {
		var status Status
		var err error
		switch d.phase {
		case atHeader:
			ip, status, err = d.header(src, ip, last)
		case inStored:
			op, ip, status, err = d.copyStored(dst, op, src, ip, last)
		case inCodes:
			if op, ip, err = d.fast(dst, op, src, ip); err == nil {
				op, ip, status, err = d.careful(dst, op, src, ip, last)
			}
		case atEnd:
			status = Done
		}
		if status == goOn {
			continue
		}
		// Whole bytes that were taken too early go back, so that the caller sees only what was needed.
		ip -= int(d.nbits >> 3)
		d.nbits &= 7
		d.bits &= 1<<d.nbits - 1
		return op, ip, status, err
	}
}
