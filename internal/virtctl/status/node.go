// Package status shows what a machine is made of and what each part waits for: a tree of the machine, its disks, their
// claims and the pods that work on them, in the words their conditions have. It reads objects and changes nothing; it
// does not know why a part is in a state, only what the part itself says.
package status

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Node is one part of a machine.
type Node struct {
	Kind     string    `json:"kind"`
	Name     string    `json:"name"`
	Phase    string    `json:"phase,omitempty"`    // the one word the part has for how it is
	Progress string    `json:"progress,omitempty"` // how far its data is, like "42.00%"
	Where    string    `json:"node,omitempty"`     // the node it is on
	Since    time.Time `json:"since,omitzero"`
	Why      string    `json:"why,omitempty"` // what it says about that; a part that is as it should be says nothing
	Parts    []Node    `json:"parts,omitempty"`
}

// Write draws the tree as it is at that time.
func (n Node) Write(w io.Writer, now time.Time) error {
	var b strings.Builder
	n.draw(&b, "", "", now)
	_, err := io.WriteString(w, b.String())
	return err
}

// draw writes the node after the prefix first, and its children after the prefix rest.
func (n Node) draw(b *strings.Builder, first, rest string, now time.Time) {
	fmt.Fprintf(b, "%s%s\n", first, n.line(now))
	if n.Why != "" {
		mark := "   "
		if len(n.Parts) > 0 {
			mark = "│  "
		}
		fmt.Fprintf(b, "%s%s%s\n", rest, mark, n.Why)
	}
	for i, part := range n.Parts {
		if i < len(n.Parts)-1 {
			part.draw(b, rest+"├─ ", rest+"│  ", now)
			continue
		}
		part.draw(b, rest+"└─ ", rest+"   ", now)
	}
}

func (n Node) line(now time.Time) string {
	words := []string{n.Kind + " " + n.Name}
	if n.Phase != "" {
		words = append(words, n.Phase)
	}
	if n.Progress != "" {
		words = append(words, n.Progress)
	}
	if n.Where != "" {
		words = append(words, "on "+n.Where)
	}
	if !n.Since.IsZero() {
		words = append(words, "for "+age(now.Sub(n.Since)))
	}
	return strings.Join(words, "  ")
}

// age returns a duration as people say it: two units, no more.
func age(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	switch {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
