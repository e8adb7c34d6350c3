package iscsi

const longestID = 64

func (c *command) reportLUNs() error {
	cdb := c.cdb()
	if cdb[2] > 2 {
		return c.check(senseField)
	}
	b := make([]byte, 8)
	if cdb[2] != 1 { // well-known LUNs are asked for, and there are none
		for _, n := range c.s.target.numbers() {
			b = append(b, 0, byte(n), 0, 0, 0, 0, 0, 0)
		}
	}
	be.PutUint32(b, uint32(len(b)-8))
	return c.reply(b, be.Uint32(cdb[6:]))
}

func (c *command) readCapacity10(l *LUN) error {
	if cdb := c.cdb(); be.Uint32(cdb[2:]) != 0 && cdb[8]&1 == 0 {
		return c.check(senseField)
	}
	b := make([]byte, 8)
	be.PutUint32(b, uint32(min(l.blocks()-1, 0xffffffff)))
	be.PutUint32(b[4:], blockSize)
	return c.reply(b, 8)
}

func (c *command) readCapacity16(l *LUN) error {
	cdb := c.cdb()
	if cdb[1]&31 != serviceReadCapacity16 {
		return c.check(senseUnknown)
	}
	b := make([]byte, 32)
	be.PutUint64(b, l.blocks()-1)
	be.PutUint32(b[8:], blockSize)
	b[13] = 3 // eight blocks are a physical one
	return c.reply(b, be.Uint32(cdb[10:]))
}

// modeSense says that the disk is write protected, and its caching and control pages.
func (c *command) modeSense(cdb []byte) error {
	control, page, sub := cdb[2]>>6, cdb[2]&0x3f, cdb[3]
	if control == 3 || sub != 0 && sub != 0xff {
		return c.check(senseField) // nothing is saved, and no page has others below it
	}
	var pages []byte
	if page == 0x08 || page == 0x3f {
		pages = append(pages, append([]byte{0x08, 18}, make([]byte, 18)...)...) // caching: none that is written back
	}
	if page == 0x0a || page == 0x3f {
		ctrl := append([]byte{0x0a, 10}, make([]byte, 10)...)
		if control != 1 {
			ctrl[4] = 8 // software write protect
		}
		pages = append(pages, ctrl...)
	}
	if len(pages) == 0 {
		return c.check(senseField)
	}
	const protected = 0x90 // and hints about caching are taken
	if cdb[0] == cmdModeSense6 {
		return c.reply(append([]byte{byte(3 + len(pages)), 0, protected, 0}, pages...), uint32(cdb[4]))
	}
	head := []byte{0, byte(6 + len(pages)), 0, protected, 0, 0, 0, 0}
	return c.reply(append(head, pages...), uint32(be.Uint16(cdb[7:])))
}

// Pages of what a LUN says about itself.
const (
	pageList, pageSerial, pageIdentity, pageLimits, pageMedium, pageProvisioning = 0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2
)

func (c *command) inquiry(l *LUN) error {
	cdb := c.cdb()
	allocated := uint32(be.Uint16(cdb[3:]))
	if cdb[1]&1 == 0 {
		if cdb[2] != 0 {
			return c.check(senseField)
		}
		b := make([]byte, 66)
		b[2], b[3], b[4], b[7] = 6, 2, byte(len(b)-5), 2 // SPC-4, command queueing
		copy(b[8:], "BERTH   ")
		copy(b[16:], "IMAGE           ")
		copy(b[32:], "1   ")
		for i, version := range []uint16{0x00a0, 0x0960, 0x0460, 0x04c0} { // SAM-5, iSCSI, SPC-4, SBC-3
			be.PutUint16(b[58+2*i:], version)
		}
		return c.reply(b, allocated)
	}
	b, ok := vital(cdb[2], l)
	if !ok {
		return c.check(senseField)
	}
	head := []byte{0, cdb[2], byte(len(b) >> 8), byte(len(b))}
	return c.reply(append(head, b...), allocated)
}

// vital returns a page of vital product data.
func vital(page byte, l *LUN) ([]byte, bool) {
	switch page {
	case pageList:
		return []byte{pageList, pageSerial, pageIdentity, pageLimits, pageMedium, pageProvisioning}, true
	case pageSerial:
		return []byte(l.ID), true
	case pageIdentity: // by vendor, and a number that Linux makes names of
		id := "BERTH   " + l.ID
		b := append([]byte{2, 1, 0, byte(len(id))}, id...)
		return append(b, append([]byte{1, 3, 0, 8}, naa(l.ID)...)...), true
	case pageLimits:
		b := make([]byte, 60)
		be.PutUint16(b[2:], 8)                     // as a physical block
		be.PutUint32(b[4:], longestRead/blockSize) // at most
		be.PutUint32(b[8:], chunk/blockSize)       // liked
		return b, true
	case pageMedium:
		b := make([]byte, 60)
		be.PutUint16(b, 1) // does not rotate
		return b, true
	case pageProvisioning:
		return make([]byte, 4), true // neither thin nor thick
	}
	return nil, false
}

// naa returns an eight-byte identifier that is locally assigned, as its first half byte says.
func naa(id string) []byte {
	h := uint64(14695981039346656037) // FNV-1a
	for _, c := range []byte(id) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	b := be.AppendUint64(nil, h)
	b[0] = 0x30 | b[0]&0x0f
	return b
}
