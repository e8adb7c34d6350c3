package main

import (
	"io"
	"strings"
	"testing"
)

// TestBadFlags: each is refused with what is wrong.
func TestBadFlags(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	t.Setenv("NAMESPACE", "space")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for says, args := range map[string][]string{
		"--node (or NODE_NAME)":   nil,
		"unexpected argument":     {"--node", "n", "more"},
		"--address":               {"--node", "n", "--address", "50051"},
		"in-cluster":              {"--node", "n"},
		"flag provided but not d": {"--colour"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", args, err, says)
		}
	}
}
