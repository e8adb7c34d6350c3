package nbd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// TestAsk asks our own server.
func TestAsk(t *testing.T) {
	exports := &Exports{Lookup: func(name string) Disk {
		if name == "there" {
			return zeroes(1 << 20)
		}
		return nil
	}}
	for name, want := range map[string]error{"there": nil, "elsewhere": ErrNoExport, "": ErrNoExport} {
		ours, theirs := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- exports.answer(theirs, func() {}) }()
		if err := Ask(ours, name); !errors.Is(err, want) {
			t.Errorf("export %q: %v, want %v", name, err, want)
		}
		_ = ours.Close()
		<-done
	}
}

type zeroes int64

func (z zeroes) Size() int64 { return int64(z) }

func (z zeroes) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }

// script is a server that says always the same.
type script struct {
	io.Reader
	io.Writer
}

func says(b []byte) script { return script{bytes.NewReader(b), io.Discard} }

func replyOf(kind uint32, n int) []byte {
	b := be.AppendUint32(be.AppendUint64(nil, magicReply), optInfo)
	return append(be.AppendUint32(be.AppendUint32(b, kind), uint32(n)), make([]byte, n)...)
}

// TestAskServers: what servers of other kinds answer.
func TestAskServers(t *testing.T) {
	hello := func(magic uint64, flags uint16) []byte {
		return be.AppendUint16(be.AppendUint64([]byte("NBDMAGIC"), magic), flags)
	}
	fixed := hello(magicOption, handshakeFixed)
	for name, row := range map[string]struct {
		server []byte
		want   error
		failed bool
	}{
		"before there were options":   {hello(0x00420281861253, 0), nil, false},
		"before there were questions": {hello(magicOption, 0), nil, false},
		"does not know the question":  {append(bytes.Clone(fixed), replyOf(repUnsupported, 0)...), nil, false},
		"requires TLS":                {append(bytes.Clone(fixed), replyOf(repTLSRequired, 11)...), ErrDenied, true},
		"refuses":                     {append(bytes.Clone(fixed), replyOf(repPolicy, 0)...), ErrDenied, true},
		"never ends":                  {append(bytes.Clone(fixed), bytes.Repeat(replyOf(repInfo, 4), 100)...), ErrProtocol, true},
		"a long answer":               {append(bytes.Clone(fixed), replyOf(repInfo, longestAnswer+1)...), ErrProtocol, true},
		"another protocol":            {[]byte(strings.Repeat("SSH-2.0 ", 9)), ErrProtocol, true},
		"hangs up":                    {fixed, io.EOF, true},
	} {
		if err := Ask(says(row.server), "disk"); !errors.Is(err, row.want) || (err != nil) != row.failed {
			t.Errorf("a server that %s: %v, want %v", name, err, row.want)
		}
	}
}

func FuzzAsk(f *testing.F) {
	f.Add(append(be.AppendUint16(be.AppendUint64([]byte("NBDMAGIC"), magicOption), handshakeFixed), replyOf(repInfo, 12)...))
	f.Fuzz(func(_ *testing.T, server []byte) { _ = Ask(says(server), "disk") })
}
