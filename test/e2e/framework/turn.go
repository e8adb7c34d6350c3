//go:build e2e

package framework

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TurnsVariable is the environment variable that names a directory with a file for each test that may run at the same time. The
// packages of tests are processes of their own, which know nothing of each other; each of their tests locks one of the files.
// Without the variable, -parallel alone limits the tests of a package.
const TurnsVariable = "E2E_TURNS"

// turns are the files that tests of this process have locked, by the name of the test.
var turns = struct {
	sync.Mutex
	taken map[string]*turn
}{taken: map[string]*turn{}}

type turn struct {
	file  *os.File
	users int // environments of that test
}

// takeTurn waits until the test may run, and lets the next one run when it has ended. A subtest runs in the turn of the test that it
// is part of, if that has taken one.
func takeTurn(t *testing.T) {
	t.Helper()
	dir := os.Getenv(TurnsVariable)
	if dir == "" {
		return
	}
	start := time.Now()
	var name string
	if !poll(t.Context(), 24*time.Hour, steady, func(context.Context) bool {
		var err error
		if name, err = tryTurn(dir, t.Name()); err != nil {
			t.Fatalf("take a turn in %s: %v", dir, err)
		}
		return name != ""
	}) {
		t.Fatal("the test was ended while it waited for its turn")
	}
	t.Cleanup(func() { endTurn(name) })
	if name == t.Name() {
		t.Logf("had a turn after %.1fs", time.Since(start).Seconds()) // hack/test reads it
	}
}

// tryTurn returns the name of the test whose turn it is; "" if the test has to wait.
func tryTurn(dir, test string) (string, error) {
	turns.Lock()
	defer turns.Unlock()
	for name := test; ; {
		if have := turns.taken[name]; have != nil {
			have.users++
			return name, nil
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			break
		}
		name = name[:i]
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return "", err
	}
	for _, path := range files {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			turns.taken[test] = &turn{file: file, users: 1}
			return test, nil
		}
		_ = file.Close() // nothing was written
	}
	return "", nil
}

func endTurn(test string) {
	turns.Lock()
	defer turns.Unlock()
	have := turns.taken[test]
	if have.users--; have.users == 0 {
		delete(turns.taken, test)
		_ = have.file.Close() // nothing was written; this unlocks it
	}
}
