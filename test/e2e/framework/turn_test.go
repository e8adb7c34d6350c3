//go:build e2e

package framework

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTurns: as many tests run as there are files, a test and its subtests run in one turn, and the next one runs when the last
// user of a turn has ended.
func TestTurns(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"0", "1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	try := func(test, want string) {
		t.Helper()
		if got, err := tryTurn(dir, test); err != nil || got != want {
			t.Errorf("%s runs in the turn of %q: %v, want %q", test, got, err, want)
		}
	}
	try("TestA", "TestA")
	try("TestA", "TestA")
	try("TestA/sub/of it", "TestA")
	try("TestB/sub", "TestB/sub")
	try("TestB/other", "")
	try("TestC", "")
	endTurn("TestA")
	endTurn("TestA")
	try("TestC", "")
	endTurn("TestA")
	try("TestC", "TestC")
	try("TestD", "")
	endTurn("TestB/sub")
	endTurn("TestC")
	if len(turns.taken) != 0 {
		t.Errorf("left: %v", turns.taken)
	}
}
