//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/images/guest/pattern"
)

// Every block of a disk is compared: what numbers wrote, and what was there before. One that is older than it has to be is found.
func TestCompareFindsWhatWasLost(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = churnRead + 3*churnBlock + 512
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	c, err := newChurn(area{file: f, length: size})
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{out: &bytes.Buffer{}, churns: map[string]*churn{"d": c}}
	compared := func() string {
		answer, err := g.compare([]string{"d"})
		return fmt.Sprint(answer, err)
	}
	b := make([]byte, churnBlock)
	for range 8 {
		c.write(g, b)
	}
	if got := compared(); got != "same 260 written 8<nil>" || g.written.Load() != 8 {
		t.Fatal(got)
	}
	at := c.place(8) * churnBlock
	if c.place(7) != c.place(8) {
		t.Fatal("number 8 is not written over number 7")
	}
	older := make([]byte, churnBlock)
	_, _ = pattern.Stream(7).ReadAt(older, at)
	for what, lost := range map[string]struct {
		off  int64
		data []byte
		want string
	}{
		"the last write of a block":    {at, older, fmt.Sprintf("block %d is not what number 8 wrote there (0: what was there before)", c.place(8))},
		"the end, which never was":     {size - 1, []byte{1}, "block 259 is not what number 0 wrote there (0: what was there before)"},
		"a bit of a block in the rest": {unwritten(c)*churnBlock + 77, []byte{1}, fmt.Sprintf("block %d is not what number 0 wrote there (0: what was there before)", unwritten(c))},
	} {
		before := make([]byte, len(lost.data))
		if _, err := f.ReadAt(before, lost.off); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(lost.data, lost.off); err != nil {
			t.Fatal(err)
		}
		if got := compared(); got != lost.want {
			t.Errorf("%s: %s", what, got)
		}
		if _, err := f.WriteAt(before, lost.off); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := g.calm([]string{"d"}); answer != "same 260 written 8" || err != nil || g.churns["d"] != nil {
		t.Errorf("calm: %s, %v", answer, err)
	}
}

// unwritten is a block that no number wrote.
func unwritten(c *churn) int64 {
	for block, number := range c.numbers {
		if number == 0 {
			return int64(block)
		}
	}
	return -1
}
