//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/images/guest/pattern"
	"github.com/berth-vm/berth/images/hardware"
)

const (
	churnBlock = 4 << 10
	churnRead  = 1 << 20
	churnPace  = 20 * time.Millisecond // slow enough that a disk can be sent elsewhere meanwhile, under emulation too
	tickPace   = 10 * time.Millisecond
)

// churn is a disk that is written to all the time: block after block that a number chooses and fills. What every block of the disk
// is to hold is remembered, also of those that were never written, so each can be compared while the writing continues. The kernel
// remembers nothing of the disk.
type churn struct {
	disk *os.File
	size int64
	seed maphash.Seed
	done chan struct{} // closed to end it

	mu      sync.Mutex // held for one write, and while a part is compared
	sums    []uint64   // of the blocks
	numbers []uint64   // that the blocks were last written with; 0: never
	written uint64
	failed  error
}

// churn begins to write to a disk.
func (g *guest) churn(args []string) (string, error) {
	if g.churns[args[0]] != nil {
		return "", errors.New("it is written to already")
	}
	a, err := openArea(args, os.O_RDWR|unix.O_DIRECT)
	if err != nil {
		return "", err
	}
	c, err := newChurn(a)
	if err != nil {
		return "", errors.Join(err, a.file.Close())
	}
	if g.churns == nil {
		g.churns = map[string]*churn{}
	}
	g.churns[args[0]] = c
	go c.run(g)
	return fmt.Sprintf("%d blocks", len(c.sums)), nil
}

// newChurn remembers what is on a disk.
func newChurn(a area) (*churn, error) {
	blocks := (a.length + churnBlock - 1) / churnBlock
	c := &churn{disk: a.file, size: a.length, seed: maphash.MakeSeed(), done: make(chan struct{}), sums: make([]uint64, blocks), numbers: make([]uint64, blocks)}
	return c, c.each(func(block int64, sum uint64) error {
		c.sums[block] = sum
		return nil
	})
}

// each reads the whole disk and gives the sum of each block. Nothing is written to a part while it is read and its sums are given.
func (c *churn) each(take func(block int64, sum uint64) error) error {
	b, err := aligned(churnRead)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(b) }()
	part := func(off int64) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := min(churnRead, c.size-off)
		if _, err := c.disk.ReadAt(b[:n], off); err != nil {
			return fmt.Errorf("read disk: %w", err)
		}
		for at := int64(0); at < n; at += churnBlock {
			if err := take((off+at)/churnBlock, maphash.Bytes(c.seed, b[at:min(at+churnBlock, n)])); err != nil {
				return err
			}
		}
		return nil
	}
	for off := int64(0); off < c.size; off += churnRead {
		if err := part(off); err != nil {
			return err
		}
	}
	return nil
}

func (c *churn) run(g *guest) {
	b, err := aligned(churnBlock)
	if err != nil {
		c.failed = err
		return
	}
	defer func() { _ = unix.Munmap(b) }()
	pace := time.NewTicker(churnPace)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
			c.write(g, b)
		case <-c.done:
			return
		}
	}
}

// write writes the next number's block.
func (c *churn) write(g *guest, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return
	}
	number := c.written + 1
	block := c.place(number)
	b = b[:min(churnBlock, c.size-block*churnBlock)]
	_, _ = pattern.Stream(number).ReadAt(b, block*churnBlock)
	if err := g.writeAt(c.disk, b, block*churnBlock); err != nil {
		c.failed = fmt.Errorf("write number %d: %w", number, err)
		return
	}
	c.sums[block], c.numbers[block], c.written = maphash.Bytes(c.seed, b), number, number
	g.written.Add(1)
}

// place is the block that a number is written to: anywhere on the disk, but a number in four where the one before it was, or numbers on a large
// disk would never be written over.
func (c *churn) place(number uint64) int64 {
	if number%4 == 0 {
		number--
	}
	var b [8]byte
	_, _ = pattern.Stream(number).ReadAt(b[:], 0)
	return int64(binary.LittleEndian.Uint64(b[:]) % uint64(len(c.sums)))
}

// compare reads every block of a disk that is written to, and says how many there are and how many were written until now.
func (g *guest) compare(args []string) (string, error) {
	c := g.churns[args[0]]
	if c == nil {
		return "", errors.New("it is not written to: churn")
	}
	err := c.each(func(block int64, sum uint64) error {
		if sum == c.sums[block] {
			return nil
		}
		return fmt.Errorf("block %d is not what number %d wrote there (0: what was there before)", block, c.numbers[block])
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = errors.Join(c.failed, err); err != nil {
		return "", err
	}
	return fmt.Sprintf("same %d written %d", len(c.sums), c.written), nil
}

// calm compares a disk a last time and ends the writing to it.
func (g *guest) calm(args []string) (string, error) {
	answer, err := g.compare(args)
	if err != nil {
		return "", err
	}
	c := g.churns[args[0]]
	delete(g.churns, args[0])
	close(c.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = errors.New("it is over") // for a write that was about to begin
	if err := c.disk.Close(); err != nil {
		return "", fmt.Errorf("close disk: %w", err)
	}
	return answer, nil
}

// uptime says how long the guest has been running, and in which run of its kernel.
func (*guest) uptime([]string) (string, error) {
	seconds, _, _ := strings.Cut(hardware.ReadLine("/proc/uptime"), " ")
	return seconds + " " + hardware.ReadLine("/proc/sys/kernel/random/boot_id"), nil
}

// tick sends a datagram to an address every hundredth of a second from now on: its number, and how many blocks were written to
// all disks. Their receiver can tell for how long the guest stood still; the guest itself cannot, since its clock stands still
// too.
func (g *guest) tick(args []string) (string, error) {
	end, pace := time.Now().Add(patience), time.NewTicker(tickPace)
	c, err := net.Dial("udp", args[0])
	for ; err != nil && time.Now().Before(end); c, err = net.Dial("udp", args[0]) { // until DHCP has given it an address
		<-pace.C
	}
	if err != nil {
		return "", err
	}
	go func() {
		for number := 1; ; number++ {
			<-pace.C
			_, _ = fmt.Fprintf(c, "%d %d", number, g.written.Load()) // one that is lost is lost
		}
	}()
	return "begun", nil
}
