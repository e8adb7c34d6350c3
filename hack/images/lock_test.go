package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestLockDir: a directory that is locked cannot be locked by another one before it is unlocked.
func TestLockDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "debian")
	unlock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		t.Error("two have locked the directory")
	}
	unlock()
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("it stays locked: %v", err)
	}
}
