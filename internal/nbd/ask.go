package nbd

import (
	"errors"
	"fmt"
	"io"
)

// What a server answers to Ask instead of the export.
var (
	ErrNoExport = errors.New("the server has no such export")
	ErrDenied   = errors.New("the server does not let this client in: it requires TLS, or other rights")
)

// Numbers of answers that only a client reads.
const (
	repPolicy      = 1<<31 | 2
	repTLSRequired = 1<<31 | 5

	// A server describes an export in a few answers of a few bytes.
	mostAnswers   = 64
	longestAnswer = 64 << 10
)

// Ask asks a server whether this client may open an export, without opening it, so the server counts no connection. A server that
// does not support the question is assumed to allow it.
func Ask(c io.ReadWriter, export string) error {
	var hello [18]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return fmt.Errorf("read what the server says first: %w", err)
	}
	if string(hello[:8]) != "NBDMAGIC" {
		return ErrProtocol
	}
	if be.Uint64(hello[8:]) != magicOption || be.Uint16(hello[16:])&handshakeFixed == 0 {
		return nil // from before there were questions
	}
	ask := be.AppendUint32(nil, handshakeFixed|handshakeNoZeroes)
	ask = be.AppendUint32(be.AppendUint64(ask, magicOption), optInfo)
	ask = be.AppendUint32(ask, uint32(4+len(export)+2))
	ask = append(be.AppendUint32(ask, uint32(len(export))), export...)
	if _, err := c.Write(be.AppendUint16(ask, 0)); err != nil {
		return fmt.Errorf("ask for the export: %w", err)
	}
	for range mostAnswers {
		kind, err := answerOf(c)
		switch {
		case err != nil:
			return err
		case kind == repInfo:
			continue
		case kind == repUnknown:
			return ErrNoExport
		case kind == repPolicy || kind == repTLSRequired:
			return ErrDenied
		}
		bye := be.AppendUint32(be.AppendUint64(nil, magicOption), optAbort)
		_, _ = c.Write(be.AppendUint32(bye, 0)) // the connection is closed in any case
		return nil
	}
	return fmt.Errorf("more than %d answers: %w", mostAnswers, ErrProtocol)
}

// answerOf reads one answer and returns its kind.
func answerOf(c io.Reader) (uint32, error) {
	var head [20]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, fmt.Errorf("read the server's answer: %w", err)
	}
	n := be.Uint32(head[16:])
	if be.Uint64(head[:]) != magicReply || n > longestAnswer {
		return 0, fmt.Errorf("answer of %d bytes: %w", n, ErrProtocol)
	}
	_, err := io.CopyN(io.Discard, c, int64(n))
	return be.Uint32(head[12:]), err
}
