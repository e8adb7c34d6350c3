// Package hosttool runs programs of the host for tests that have the tag host.
package hosttool

import (
	"context"
	"os/exec"
	"testing"
)

// Run runs a program and returns what it prints. The test fails if the program does.
func Run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
	return string(out)
}
