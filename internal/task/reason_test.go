package task

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"
)

// TestNoEnd: an error with a reason is never the end of a file, though it is made of a connection that ended. Everything else that it was
// made of is found in it.
func TestNoEnd(t *testing.T) {
	closed := &url.Error{Op: "Get", URL: "http://a/b", Err: io.EOF}
	err := fmt.Errorf("read it: %w", Errorf(SourceUnreachable, "a: %w", closed))
	if errors.Is(err, io.EOF) {
		t.Error("a connection that was closed is the end of a file")
	}
	if !Is(err, SourceUnreachable) || err.Error() != `read it: a: Get "http://a/b": EOF` {
		t.Errorf("its reason or its words are lost: %v", err)
	}
	if other := errors.New("other"); !errors.Is(Errorf(BadImage, "%w", other), other) {
		t.Error("what another error was made of is not found")
	}
}
