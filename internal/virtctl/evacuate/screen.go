package evacuate

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/berth-vm/berth/internal/virtctl/bar"
)

// screen shows a line for each machine: drawn over on a terminal, and a new line for what is new anywhere else.
type screen struct {
	out   io.Writer
	live  bool
	width int
	drawn int               // lines
	last  map[string]string // by machine
}

// narrow is the width where there is no terminal to ask.
const narrow = 100

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, width: narrow, last: map[string]string{}}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.live = true
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			s.width = w - 1
		}
	}
	return s
}

func (s *screen) draw(all []*leaving) {
	var b strings.Builder
	if s.live && s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	for _, m := range all {
		switch line := s.line(m); {
		case s.live:
			fmt.Fprintf(&b, "\r%s\x1b[K\n", line)
		case s.last[m.title()] != line:
			s.last[m.title()] = line
			fmt.Fprintln(&b, line)
		}
	}
	s.drawn = len(all)
	_, _ = io.WriteString(s.out, b.String()) // there is nothing to do about a terminal that is gone
}

// line returns a machine with its bar or its message. If the output is not a terminal, only messages are printed.
func (s *screen) line(m *leaving) string {
	title := m.title() + ": "
	if s.live && !m.gone && m.total > 0 {
		return title + strings.TrimLeft(bar.MiB(m.sent, m.total, 0, max(s.width-len(title), 40)), " ")
	}
	if !s.live && m.total > 0 && !m.gone {
		return title + "the guest is being sent"
	}
	text := title + m.says
	if s.live && len(text) > s.width {
		text = text[:s.width]
	}
	return text
}
