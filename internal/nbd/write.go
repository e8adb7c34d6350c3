package nbd

import (
	"errors"
	"io"
	"syscall"
)

// Writer is a disk that is written to, by several at once. What was written is on stable storage when a Flush has returned
// that began after it.
type Writer interface {
	Disk
	io.WriterAt
	// Zero makes n bytes from off on zero.
	Zero(off, n int64) error
	Flush() error
}

// flagOnce on a request: it is not answered before what it wrote is on stable storage.
const flagOnce = 1

// payload reads the data of a write. A write that is too long is discarded.
func (s *session) payload(r *request) error {
	if r.command != cmdWrite {
		return nil
	}
	if s.to == nil || r.n > s.longest || s.outside(r.off, r.n) {
		_, err := io.CopyN(io.Discard, s.in, int64(r.n))
		return err
	}
	r.data = make([]byte, r.n)
	_, err := io.ReadFull(s.in, r.data)
	return err
}

func (s *session) flush() uint32 {
	if s.to == nil {
		return 0 // nothing is ever unwritten
	}
	return code(s.to.Flush())
}

// change writes bytes or zeroes.
func (s *session) change(r request) uint32 {
	var err error
	switch {
	case s.to == nil:
		return errPermission
	case s.outside(r.off, r.n):
		return errNoSpace // as the specification has it of writes
	case r.command == cmdZeroes:
		err = s.to.Zero(int64(r.off), int64(r.n))
	case r.data == nil && r.n > 0:
		return errInvalid
	default:
		_, err = s.to.WriteAt(r.data, int64(r.off))
	}
	if err == nil && r.flags&flagOnce != 0 {
		err = s.to.Flush()
	}
	return code(err)
}

// code returns the NBD error code for an error.
func code(err error) uint32 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errNoSpace
	}
	return errIO
}
