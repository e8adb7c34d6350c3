package nbd

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

func equal(a, b [][2]int64) bool { return slices.Equal(a, b) }

// hello is the server's part of the handshake: structured replies, one context, an export of 1 MiB.
func hello() []byte {
	reply := func(option, kind uint32, data []byte) []byte {
		b := be.AppendUint32(be.AppendUint32(be.AppendUint64(nil, magicReply), option), kind)
		return append(be.AppendUint32(b, uint32(len(data))), data...)
	}
	b := be.AppendUint16(be.AppendUint64([]byte("NBDMAGIC"), magicOption), handshakeFixed|handshakeNoZeroes)
	b = append(b, reply(optStructuredReply, repAck, nil)...)
	b = append(b, reply(optSetMetaContext, repMetaContext, append(be.AppendUint32(nil, 7), "base:allocation"...))...)
	b = append(b, reply(optSetMetaContext, repAck, nil)...)
	b = append(b, reply(optGo, repInfo, be.AppendUint16(be.AppendUint64(be.AppendUint16(nil, infoExport), 1<<20), 0))...)
	return append(b, reply(optGo, repAck, nil)...)
}

func chunk(flags, kind uint16, cookie uint64, data []byte) []byte {
	b := be.AppendUint16(be.AppendUint16(be.AppendUint32(nil, magicChunk), flags), kind)
	return append(be.AppendUint32(be.AppendUint64(b, cookie), uint32(len(data))), data...)
}

func at(off uint64, data []byte) []byte { return append(be.AppendUint64(nil, off), data...) }

// negotiated is how much a client sends to open export "vda" with the context "base:allocation", and request is the length of a request.
const negotiated, requested = 4 + 16 + (16 + 4 + 3 + 4 + 4 + 15) + (16 + 4 + 3 + 2), 28

// hostile is a server that negotiates and then answers the first request with what it is told to say.
func hostile(t testing.TB, hello, says []byte) net.Conn {
	us, them := net.Pipe()
	t.Cleanup(func() { _, _ = us.Close(), them.Close() })
	asked := make(chan struct{})
	go func() {
		_, _ = io.CopyN(io.Discard, them, negotiated+requested)
		close(asked)
		_, _ = io.Copy(io.Discard, them)
	}()
	go func() {
		_, _ = them.Write(hello)
		<-asked
		_, _ = them.Write(says)
		_ = them.Close()
	}()
	_ = us.SetDeadline(time.Now().Add(10 * time.Second))
	return us
}

func TestClientDoesNotTrustTheServer(t *testing.T) {
	data := bytes.Repeat([]byte{1}, 512)
	for name, says := range map[string][]byte{
		"data before the range":         chunk(chunkDone, chunkData, 1, at(0, data)),
		"data behind the range":         chunk(chunkDone, chunkData, 1, at(4096+512, data)),
		"data at an offset that wraps":  chunk(chunkDone, chunkData, 1, at(1<<63, data)),
		"more data than was asked for":  chunk(chunkDone, chunkData, 1, at(4096, bytes.Repeat(data, 3))),
		"the same data twice":           append(chunk(0, chunkData, 1, at(4096, data)), chunk(chunkDone, chunkData, 1, at(4096, bytes.Repeat(data, 2)))...),
		"less data than was asked for":  chunk(chunkDone, chunkData, 1, at(4096, data)),
		"a hole that is too long":       chunk(chunkDone, chunkHole, 1, be.AppendUint32(at(4096, nil), 1<<31)),
		"nothing":                       chunk(chunkDone, chunkNone, 1, nil),
		"extents":                       chunk(chunkDone, chunkStatus, 1, be.AppendUint64(be.AppendUint32(nil, 7), 1)),
		"another request's reply":       chunk(chunkDone, chunkData, 9, at(4096, data)),
		"a simple reply without data":   be.AppendUint64(be.AppendUint32(be.AppendUint32(nil, magicAnswer), 0), 1),
		"no protocol":                   bytes.Repeat([]byte("x"), 64),
		"the end of the connection":     nil,
		"an error":                      chunk(chunkDone, chunkError|1, 1, append(be.AppendUint32(nil, 5), 0, 2, 'n', 'o')),
		"an error with a length of its": chunk(chunkDone, chunkError|1, 1, append(be.AppendUint32(nil, 5), 255, 255, 'n', 'o')),
	} {
		c, err := Open(hostile(t, hello(), says), "vda", "base:allocation")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p := make([]byte, 3*512)
		if n, err := c.ReadAt(p[:2*512], 4096); err == nil {
			t.Errorf("%s: read %d bytes", name, n)
		}
		if !bytes.Equal(p[2*512:], make([]byte, 512)) {
			t.Errorf("%s: wrote beyond the caller's memory", name)
		}
	}
}

func TestExtentsThatEndNowhere(t *testing.T) {
	status := func(extents ...uint32) []byte {
		b := be.AppendUint32(nil, 7)
		for _, e := range extents {
			b = be.AppendUint32(b, e)
		}
		return chunk(chunkDone, chunkStatus, 1, b)
	}
	for name, says := range map[string][]byte{
		"an extent of no bytes": status(0, 1),
		"no extents":            chunk(chunkDone, chunkStatus, 1, be.AppendUint32(nil, 7)),
		"half an extent":        chunk(chunkDone, chunkStatus, 1, be.AppendUint64(be.AppendUint64(nil, 7), 7)),
		"too many":              append(be.AppendUint32(chunk(chunkDone, chunkStatus, 1, nil)[:16], 1<<31+4), make([]byte, 1<<10)...),
	} {
		c, err := Open(hostile(t, hello(), says), "vda", "base:allocation")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Extents("base:allocation", func(Extent) error { return nil }); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	c, err := Open(hostile(t, hello(), status(4096, 0, 4096, 0, 1<<31, 3)), "vda", "base:allocation")
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := c.Extents("base:allocation", func(e Extent) error { got += fmt.Sprint(e); return nil }); err != nil || got != "{0 8192 0}{8192 1040384 3}" {
		t.Errorf("%s: %v", got, err)
	}
}

// FuzzClient: whatever a server answers, the client ends, within the memory of its caller.
func FuzzClient(f *testing.F) {
	f.Add([]byte{})
	f.Add(chunk(chunkDone, chunkData, 1, at(0, make([]byte, 512))))
	f.Add(chunk(chunkDone, chunkStatus, 1, be.AppendUint64(be.AppendUint32(nil, 7), 1<<32)))
	f.Fuzz(func(t *testing.T, says []byte) {
		c, err := Open(hostile(t, hello(), says), "vda", "base:allocation")
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 512, 1024)
		_, _ = c.ReadAt(p, 0)
		if !bytes.Equal(p[512:1024], make([]byte, 512)) {
			t.Error("wrote beyond the caller's memory")
		}
		_ = c.Extents("base:allocation", func(Extent) error { return nil })
		_ = c.Close()
	})
}

// FuzzGreeting: whatever a server says before that, the client ends.
func FuzzGreeting(f *testing.F) {
	f.Add(hello())
	f.Fuzz(func(_ *testing.T, says []byte) {
		us, them := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, them) }()
		go func() {
			_, _ = them.Write(says)
			_ = them.Close()
		}()
		if c, err := Open(us, "vda", "base:allocation"); err == nil {
			_ = c.Close()
		}
		_ = us.Close()
	})
}
