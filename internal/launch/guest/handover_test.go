package guest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-vm/berth/internal/launch"
)

// lastWords is a QEMU that says this and ends.
func lastWords(t *testing.T, words ...string) *monitor {
	t.Helper()
	return fakeMonitor(t, func(string, json.RawMessage) (string, bool) { // to qmp_capabilities
		return `{"return": {}}` + strings.Join(words, "\n"), true
	})
}

// listener is a target that takes the word with this answer, and counts how often it is told.
func listener(t *testing.T, answer error) (moveTarget, *atomic.Int32) {
	t.Helper()
	ours, theirs := twoKeys(t)
	l, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told := &atomic.Int32{}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go inbox{keys: theirs, gone: func() error { told.Add(1); return answer }}.serve(ctx, l)
	return moveTarget{address: l.Addr().String(), keys: ours}, told
}

const (
	active    = `{"event": "MIGRATION", "data": {"status": "active"}}`
	stop      = `{"event": "STOP"}`
	completed = `{"event": "MIGRATION", "data": {"status": "completed"}}`
	resume    = `{"event": "RESUME"}`
	shutdown  = `{"event": "SHUTDOWN", "data": {"guest": false, "reason": "host-signal"}}`
)

// TestTellEarly: the target is told when QEMU has ended after all of the guest was sent, and never of one that ran afterwards, or of which that
// is not certain. It is told once, and what is said to the controller is what was said to it.
func TestTellEarly(t *testing.T) {
	refused := errors.New("the guest is not here in whole")
	for name, c := range map[string]struct {
		words   []string
		libvirt launch.End
		answer  error
		early   int32 // how often the target is told before libvirt speaks
		told    int32 // and in all
		end     launch.End
	}{
		"moved":                         {[]string{active, stop, completed, shutdown}, launch.Moved, nil, 1, 1, launch.Moved},
		"moved, and libvirt is silent":  {[]string{active, stop, completed}, launch.Crashed, nil, 1, 1, launch.Moved},
		"not sent, and it crashed":      {[]string{active, stop}, launch.Crashed, nil, 0, 0, launch.Crashed},
		"never sent":                    {[]string{stop, shutdown}, launch.Stopped, nil, 0, 0, launch.Stopped},
		"ran on":                        {[]string{active, stop, completed, resume, shutdown}, launch.Stopped, nil, 0, 0, launch.Stopped},
		"sent before, and ran on":       {[]string{completed, resume, active, stop}, launch.Crashed, nil, 0, 0, launch.Crashed},
		"sent again":                    {[]string{completed, active}, launch.Crashed, nil, 0, 0, launch.Crashed},
		"words that nobody understands": {[]string{completed, "}{"}, launch.Crashed, nil, 0, 0, launch.Crashed},
		"only libvirt says so":          {nil, launch.Moved, nil, 0, 1, launch.Moved},
		"not whole, and it crashed":     {[]string{active, stop, completed}, launch.Crashed, refused, 1, 1, launch.Crashed},
		"not whole, but moved":          {[]string{active, stop, completed}, launch.Moved, refused, 1, 2, launch.Moved},
	} {
		t.Run(name, func(t *testing.T) {
			to, told := listener(t, c.answer)
			v := &moves{to: to, at: launch.Move{ID: "m", Pod: "there"}}
			v.tellEarly(t.Context(), lastWords(t, c.words...))
			if got := told.Load(); got != c.early {
				t.Errorf("told %d times before libvirt speaks", got)
			}
			r := v.handOver(t.Context(), launch.Report{End: c.libvirt})
			if got := told.Load(); got != c.told || r.End != c.end || (r.To == "there") != (c.end == launch.Moved) {
				t.Errorf("told %d times, and the report is %+v", got, r)
			}
		})
	}
}

// TestTellTooLate: when the controller was told of another end, the target is not told any more.
func TestTellTooLate(t *testing.T) {
	to, told := listener(t, nil)
	v := &moves{to: to}
	r := v.handOver(t.Context(), launch.Report{End: launch.Crashed})
	v.tellEarly(t.Context(), lastWords(t, active, completed))
	if told.Load() != 0 || r.End != launch.Crashed {
		t.Errorf("told %d times, and the report is %+v", told.Load(), r)
	}
}
