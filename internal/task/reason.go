package task

import (
	"errors"
	"fmt"
	"io"
)

// Reason says why, in one word that code may compare. The sentence for a person is in Report.Detail.
type Reason string

// Every reason a worker can give, with the outcome it goes with.
const (
	Completed Reason = "Completed" // Done

	SourceUnreachable Reason = "SourceUnreachable" // Retry: no connection, reset, timeout, DNS
	SourceNotFound    Reason = "SourceNotFound"    // Retry: 404; it may appear later
	SourceUnavailable Reason = "SourceUnavailable" // Retry: 5xx, 429
	SourceDenied      Reason = "SourceDenied"      // Retry: 401, 403; a secret may be mended
	SourceUntrusted   Reason = "SourceUntrusted"   // Retry: the certificate is not trusted
	SourceChanged     Reason = "SourceChanged"     // Retry: the bytes changed while they were read
	SourceTruncated   Reason = "SourceTruncated"   // Retry: the stream ended before its announced length
	TargetBusy        Reason = "TargetBusy"        // Retry
	TargetFailed      Reason = "TargetFailed"      // Retry: an I/O error of the volume
	Interrupted       Reason = "Interrupted"       // Retry: the worker was told to stop

	BadTask          Reason = "BadTask"          // Fatal: the task itself makes no sense
	BadImage         Reason = "BadImage"         // Fatal: corrupt, truncated or contradictory
	UnsafeImage      Reason = "UnsafeImage"      // Fatal: names another file, escapes its directory, is a bomb
	UnsupportedImage Reason = "UnsupportedImage" // Fatal: encrypted, or a feature nobody implements
	ChecksumMismatch Reason = "ChecksumMismatch" // Fatal
	DoesNotFit       Reason = "DoesNotFit"       // Fatal: larger than the target
)

// Outcome returns the outcome that goes with a reason.
func (r Reason) Outcome() Outcome {
	switch r {
	case Completed:
		return Done
	case SourceUnreachable, SourceNotFound, SourceUnavailable, SourceDenied, SourceUntrusted, SourceChanged,
		SourceTruncated, TargetBusy, TargetFailed, Interrupted:
		return Retry
	case BadTask, BadImage, UnsafeImage, UnsupportedImage, ChecksumMismatch, DoesNotFit:
		return Fatal
	}
	return Retry // a reason this version does not know: trying again does no harm, giving up might
}

// Error is an error that knows its reason. The data plane returns it wherever the reason matters to a person; any
// other error is reported as Retry.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error {
	// A connection that was closed without an answer is io.EOF to its reader. With a reason it is not the end of a file: a reader
	// that takes it for one would take what is missing for zeroes, or for the end of the data.
	if errors.Is(e.Err, io.EOF) {
		return nil
	}
	return e.Err
}

// Errorf returns an Error made like fmt.Errorf.
func Errorf(reason Reason, format string, args ...any) error {
	return &Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Is reports whether err has this reason.
func Is(err error, reason Reason) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}

// Truncated returns the error for an image whose file ends too early: what begins at off and needs n bytes.
func Truncated(what string, off, n, size int64) error {
	return Errorf(BadImage, "%w: %s at byte %d needs %d bytes, but the file ends at byte %d; fetch it again or check its source",
		ErrTruncated, what, off, n, size)
}

// ErrTruncated is wrapped by the errors of Truncated.
var ErrTruncated = errors.New("image is truncated")
