// Package bar draws the progress of a transfer: a line that is overwritten on a terminal, and one line at the end elsewhere, so
// that logs stay readable. It does not know what is transferred.
package bar

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
	"k8s.io/utils/clock"
)

const (
	// width is the width of a line if the output is not a terminal.
	width = 80
	// pause is the least time between two updates; a faster display is unreadable.
	pause = 200 * time.Millisecond
)

// Bar is one transfer. It is for one goroutine at a time.
type Bar struct {
	out   io.Writer
	live  bool // out is a terminal: the line is drawn over
	width int
	clock clock.PassiveClock

	done, total int64
	first       int64 // what was done when the bar began: a resumed transfer
	began, last time.Time
	line        func(done, total int64, left time.Duration, width int) string
}

// Bytes returns a bar of bytes.
func Bytes(out io.Writer) *Bar { return begin(out, MiB) }

// Percent returns a bar for work of unknown size: done and total are parts of a whole.
func Percent(out io.Writer) *Bar { return begin(out, share) }

// Count returns a bar for bytes whose total is unknown.
func Count(out io.Writer) *Bar {
	return begin(out, func(done, _ int64, _ time.Duration, _ int) string {
		return fmt.Sprintf(" %.2f MiB", float64(done)/(1<<20))
	})
}

func begin(out io.Writer, line func(int64, int64, time.Duration, int) string) *Bar {
	b := &Bar{out: out, width: width, clock: clock.RealClock{}, line: line, first: -1}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b.live = true
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			b.width = w - 1 // a full line would make some terminals begin another
		}
	}
	return b
}

// Set sets the progress of the transfer.
func (b *Bar) Set(done, total int64) {
	now := b.clock.Now()
	if b.first < 0 {
		b.first, b.began = done, now
	}
	b.done, b.total = done, total
	if b.live && now.Sub(b.last) >= pause {
		b.last = now
		b.draw("\r", "\x1b[K")
	}
}

// Say writes a line above the bar.
func (b *Bar) Say(text string) {
	if b.live {
		text = "\r\x1b[K" + text
		b.last = time.Time{} // it is drawn again by the next Set
	}
	_, _ = fmt.Fprintln(b.out, text) // as in draw
}

// End draws the bar for the last time and ends the line. A transfer that never began has none.
func (b *Bar) End() {
	if b.first < 0 {
		return
	}
	if b.live {
		b.draw("\r", "\x1b[K\n")
		return
	}
	b.draw("", "\n")
}

func (b *Bar) draw(before, after string) {
	_, _ = fmt.Fprint(b.out, before, b.line(b.done, b.total, b.left(), b.width), after) // there is nothing to do about a terminal that is gone
}

// left returns how long the rest takes at the average speed so far.
func (b *Bar) left() time.Duration {
	sent, rest := b.done-b.first, b.total-b.done
	if sent <= 0 || rest <= 0 {
		return 0
	}
	took := b.clock.Since(b.began)
	return time.Duration(math.Min(float64(took)*float64(rest)/float64(sent), float64(1000*time.Hour))).Round(time.Second)
}

// MiB returns a line of bytes: " 1.00 MiB / 2.00 MiB [=====>-----] 50.00% 3s".
func MiB(done, total int64, left time.Duration, width int) string {
	const unit = 1 << 20
	head := fmt.Sprintf(" %.2f MiB / %.2f MiB ", float64(done)/unit, float64(total)/unit)
	return between(head, done, total, left, width)
}

func share(done, total int64, left time.Duration, width int) string {
	return between(" ", done, total, left, width)
}

func between(head string, done, total int64, left time.Duration, width int) string {
	part := 1.0
	if total > 0 {
		part = math.Max(0, math.Min(1, float64(done)/float64(total)))
	}
	tail := fmt.Sprintf(" %.2f%% %s", math.Floor(part*1e4)/100, left)
	room := max(width-len(head)-len(tail)-2, 10)
	full := int(part * float64(room))
	bar := strings.Repeat("=", full)
	if full < room {
		bar += ">" + strings.Repeat("-", room-full-1)
	}
	return head + "[" + bar + "]" + tail
}
