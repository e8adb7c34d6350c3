package restore

import (
	"fmt"
	"io"
	"time"

	"github.com/berth-vm/berth/internal/virtctl/drill"
)

// Report is what a drill found out, for people and for programs.
type Report struct {
	Machine    string    `json:"machine"`
	From       string    `json:"from"`
	Checkpoint string    `json:"checkpoint"`
	Moment     time.Time `json:"moment"` // when the backup was made
	Copy       string    `json:"copy"`
	Started    time.Time `json:"started"`
	Passed     bool      `json:"passed"`
	Result     string    `json:"result"`
	Message    string    `json:"message"`
	WaitedFor  string    `json:"waitedFor"`
	Note       string    `json:"note,omitempty"`
	// UpAfter and FullAfter are seconds from the creation of the copy on.
	UpAfter   *float64 `json:"upAfterSeconds,omitempty"`
	FullAfter *float64 `json:"disksFullAfterSeconds,omitempty"`
	Console   []string `json:"console,omitempty"` // its last lines, if the drill has not passed
	Removed   bool     `json:"removed"`
	Left      string   `json:"left,omitempty"` // why what was made is not removed
}

// reportOf puts together what was found out.
func reportOf(o Options, made *copied, found drill.Outcome, left error) *Report {
	r := &Report{Machine: o.Name, From: o.From, Checkpoint: made.moment.Checkpoint, Moment: made.moment.Created.UTC(), Copy: made.order.Name,
		Started: made.order.Since.UTC().Truncate(time.Second), Passed: found.Result == drill.Passed, Result: string(found.Result), Message: found.Message,
		WaitedFor: string(made.order.Sign), Note: made.note, UpAfter: seconds(found.Up), FullAfter: seconds(found.Full), Removed: left == nil}
	if made.order.Line != nil {
		r.WaitedFor += " that matches " + made.order.Line.String()
	}
	if !r.Passed {
		r.Console = found.Last
	}
	if left != nil {
		r.Left = left.Error()
	}
	return r
}

// seconds is a time with tenths; nil if there is none.
func seconds(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := d.Round(100 * time.Millisecond).Seconds()
	return &s
}

// Good reports whether the drill passed and left nothing.
func (r *Report) Good() bool { return r.Passed && r.Removed }

// Write writes the report for people.
func (r *Report) Write(w io.Writer) {
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(w, format+"\n", args...) // the terminal was closed
	}
	verdict := "FAILED"
	if r.Passed {
		verdict = "passed"
	}
	say("Restore of %s from %s, backup %s of %s: %s", r.Machine, r.From, r.Checkpoint, r.Moment.Format(time.RFC3339), verdict)
	say("  %s: %s", r.Result, r.Message)
	say("  waited for: %s", r.WaitedFor)
	if r.Note != "" {
		say("  note:       %s", r.Note)
	}
	if r.UpAfter != nil {
		say("  up after:   %.1f s", *r.UpAfter)
	}
	if r.FullAfter != nil {
		say("  disks full: after %.1f s", *r.FullAfter)
	}
	if len(r.Console) > 0 {
		say("  the console ended with:")
		for _, line := range r.Console {
			say("    | %s", line)
		}
	}
	if !r.Removed {
		say("  not everything was removed: %s", r.Left)
		say("  the next drill of %s tries again", r.Machine)
	}
}
