//go:build linux

package main

import (
	"encoding/binary"
	"os"
	"testing"
)

// A page that holds what an earlier round wrote is found.
func TestMemoryFindsWhatWasLost(t *testing.T) {
	page := os.Getpagesize()
	m := &memory{pages: make([]byte, 3*page)}
	for range 5 {
		if !m.round() {
			t.Fatal(m.failed)
		}
	}
	if got, err := m.found(); got != "same 5 rounds" || err != nil {
		t.Fatal(got, err)
	}
	binary.LittleEndian.PutUint64(m.pages[page:], 4)
	if m.round() {
		t.Error("a page that was not written in the last round went unseen")
	}
	if _, err := m.found(); err == nil || err.Error() != "page 1 of 3 holds 4, and 5 was written there" {
		t.Error(err)
	}
}
