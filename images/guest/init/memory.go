//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const memoryPace = time.Millisecond

// memory is a part of the guest's memory that is written to all the time: in every round each page must hold the number of the round before, and gets
// the number of this one.
type memory struct {
	mu     sync.Mutex
	pages  []byte
	rounds uint64
	failed error
}

// remember begins to write to so many bytes of memory, or without a number says what was found in them.
func (g *guest) remember(args []string) (string, error) {
	if len(args) == 0 {
		return g.memory.found()
	}
	if g.memory != nil {
		return "", errors.New("memory is written to already")
	}
	size, err := strconv.Atoi(args[0])
	if err != nil {
		return "", fmt.Errorf("size: %w", err)
	}
	b, err := aligned(size)
	if err != nil {
		return "", err
	}
	g.memory = &memory{pages: b}
	go func() {
		for pace := time.NewTicker(memoryPace); g.memory.round(); {
			<-pace.C
		}
	}()
	return "begun", nil
}

// aligned is memory that begins with a page, so that a disk can be read into it past the kernel's own.
func aligned(size int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("get memory: %w", err)
	}
	return b, nil
}

// round writes to each page once. It is the last one if a page does not hold what it has to.
func (m *memory) round() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	page := os.Getpagesize()
	for at := 0; at+page <= len(m.pages); at += page {
		word := m.pages[at : at+8]
		if holds := binary.LittleEndian.Uint64(word); holds != m.rounds {
			m.failed = fmt.Errorf("page %d of %d holds %d, and %d was written there", at/page, len(m.pages)/page, holds, m.rounds)
			return false
		}
		binary.LittleEndian.PutUint64(word, m.rounds+1)
	}
	m.rounds++
	return true
}

func (m *memory) found() (string, error) {
	if m == nil {
		return "", errors.New("it is not written to: memory BYTES")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return "", m.failed
	}
	return fmt.Sprintf("same %d rounds", m.rounds), nil
}
