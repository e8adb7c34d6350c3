package status

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

const interval = time.Second

// Show writes the machine's tree once.
func Show(ctx context.Context, c *kube.Client, name string, out io.Writer) error {
	s, err := Read(ctx, c, name)
	if err != nil {
		return err
	}
	return s.Tree().Write(out, time.Now())
}

// Watch writes the tree again and again until ctx ends or the machine is gone: over the last one on a terminal; elsewhere only
// when more than the time has changed.
func Watch(ctx context.Context, c *kube.Client, name string, out io.Writer) error {
	live := false
	if f, ok := out.(*os.File); ok {
		live = term.IsTerminal(int(f.Fd()))
	}
	last := ""
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		s, err := Read(ctx, c, name)
		if err != nil {
			return false, err
		}
		tree, now := s.Tree(), time.Now()
		text := tree.text(now)
		if live {
			_, err = fmt.Fprintf(out, "\x1b[H\x1b[2J%s  %s\n\n%s", name, now.Format(time.TimeOnly), text)
			return false, err
		}
		if still := tree.timeless().text(now); still != last {
			last = still
			_, err = fmt.Fprintf(out, "%s\n%s", now.Format(time.TimeOnly), text)
		}
		return false, err
	})
	if ctx.Err() != nil {
		return nil // the user has seen enough
	}
	return err
}

func (n Node) text(now time.Time) string {
	var b bytes.Buffer
	_ = n.Write(&b, now) // memory takes everything
	return b.String()
}

// timeless returns the tree without ages.
func (n Node) timeless() Node {
	n.Since = time.Time{}
	parts := make([]Node, len(n.Parts))
	for i, p := range n.Parts {
		parts[i] = p.timeless()
	}
	n.Parts = parts
	return n
}
