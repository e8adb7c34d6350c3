package drill

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Bounds of what is kept of a console: a guest writes what it likes.
const (
	longestLine = 4 << 10
	lastLines   = 20
)

// console reads what a guest says on its serial console.
type console struct {
	want *regexp.Regexp // nil: nothing

	mu    sync.Mutex
	last  []string
	found bool
	err   error
}

// follow reads a console until ctx ends. open begins at the first line each time, so a connection that is lost costs nothing.
func (k *console) follow(ctx context.Context, open func(context.Context) (io.ReadCloser, error)) {
	for ctx.Err() == nil {
		stream, err := open(ctx)
		if err == nil {
			k.restart()
			err = k.read(stream)
			_ = stream.Close() // it was only read
		}
		k.mu.Lock()
		k.err = err
		k.mu.Unlock()
		select {
		case <-time.After(look):
		case <-ctx.Done():
		}
	}
}

func (k *console) restart() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = nil
}

// read reads lines to the end of a stream. Of a line that is too long, the rest is dropped.
func (k *console) read(stream io.Reader) error {
	lines := bufio.NewReaderSize(stream, longestLine)
	for {
		text, cut, err := lines.ReadLine()
		if len(text) > 0 {
			k.add(string(text))
		}
		for cut && err == nil {
			_, cut, err = lines.ReadLine()
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the console: %w", err)
		}
	}
}

// add takes a line, without what a terminal would obey.
func (k *console) add(line string) {
	line = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\t' {
			return r
		}
		return -1
	}, line)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.found = k.found || k.want != nil && k.want.MatchString(line)
	k.last = append(k.last, line)
	if over := len(k.last) - lastLines; over > 0 {
		k.last = append(k.last[:0], k.last[over:]...)
	}
}

// state returns whether the line was seen, the last lines, and why there are no more.
func (k *console) state() (found bool, last []string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.found, append([]string(nil), k.last...), k.err
}
