// Package refuse makes the errors that end an import because of the image itself: each carries the reason a report
// names. It knows neither formats nor sources; the caller says what was wrong, where, and with which numbers.
package refuse

import (
	"errors"
	"fmt"

	"github.com/berth-vm/berth/internal/task"
)

// Bad is for an image that is corrupt or contradicts itself.
func Bad(format string, args ...any) error {
	return &task.Error{Reason: task.BadImage, Err: fmt.Errorf(format, args...)}
}

// Unsafe is for an image that would have us touch something other than itself.
func Unsafe(format string, args ...any) error {
	return &task.Error{Reason: task.UnsafeImage, Err: fmt.Errorf(format, args...)}
}

// Unsupported is for an image that is sound but uses what nobody here implements.
func Unsupported(format string, args ...any) error {
	return &task.Error{Reason: task.UnsupportedImage, Err: fmt.Errorf(format, args...)}
}

// Truncated is Bad with the numbers of a file that ends too early: what begins at off and needs n bytes.
func Truncated(what string, off, n, size int64) error {
	return Bad("%w: %s at byte %d needs %d bytes, but the file ends at byte %d; fetch it again or check its source",
		ErrTruncated, what, off, n, size)
}

// ErrTruncated is in every error of Truncated.
var ErrTruncated = errors.New("image is truncated")
