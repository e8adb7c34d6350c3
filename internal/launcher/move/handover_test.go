package move

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-vm/berth/internal/launcher/movelink"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/testing/movekeys"
	"github.com/berth-vm/berth/internal/testing/qmptest"
)

// lastWords is a QEMU that says this and ends.
func lastWords(t *testing.T, words ...string) *qmp.Monitor {
	t.Helper()
	return qmptest.Fake(t, func(string, json.RawMessage) (string, bool) { // to qmp_capabilities
		return `{"return": {}}` + strings.Join(words, "\n"), true
	})
}

// listener is a target that takes the word with this answer, and counts how often it is told.
func listener(t *testing.T, answer error) (movelink.Target, *atomic.Int32) {
	t.Helper()
	ours, theirs := movekeys.Pair(t)
	l, err := movelink.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told := &atomic.Int32{}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go movelink.Inbox{Keys: theirs, Gone: func() error { told.Add(1); return answer }}.Serve(ctx, l)
	return movelink.Target{Address: l.Addr().String(), Keys: ours}, told
}

const (
	active    = `{"event": "MIGRATION", "data": {"status": "active"}}`
	stop      = `{"event": "STOP"}`
	completed = `{"event": "MIGRATION", "data": {"status": "completed"}}`
	resume    = `{"event": "RESUME"}`
	shutdown  = `{"event": "SHUTDOWN", "data": {"guest": false, "reason": "host-signal"}}`
)

// TestTellEarly: the target is told when QEMU has ended after all of the guest was sent, and never if the guest ran afterwards, or
// may have. It is told once, and the report to the controller says the same.
func TestTellEarly(t *testing.T) {
	refused := errors.New("the guest is not here in whole")
	for name, c := range map[string]struct {
		words   []string
		libvirt launcherapi.End
		answer  error
		early   int32 // how often the target is told before libvirt speaks
		told    int32 // and in all
		end     launcherapi.End
	}{
		"moved":                         {[]string{active, stop, completed, shutdown}, launcherapi.Moved, nil, 1, 1, launcherapi.Moved},
		"moved, and libvirt is silent":  {[]string{active, stop, completed}, launcherapi.Crashed, nil, 1, 1, launcherapi.Moved},
		"not sent, and it crashed":      {[]string{active, stop}, launcherapi.Crashed, nil, 0, 0, launcherapi.Crashed},
		"never sent":                    {[]string{stop, shutdown}, launcherapi.Stopped, nil, 0, 0, launcherapi.Stopped},
		"ran on":                        {[]string{active, stop, completed, resume, shutdown}, launcherapi.Stopped, nil, 0, 0, launcherapi.Stopped},
		"sent before, and ran on":       {[]string{completed, resume, active, stop}, launcherapi.Crashed, nil, 0, 0, launcherapi.Crashed},
		"sent again":                    {[]string{completed, active}, launcherapi.Crashed, nil, 0, 0, launcherapi.Crashed},
		"words that nobody understands": {[]string{completed, "}{"}, launcherapi.Crashed, nil, 0, 0, launcherapi.Crashed},
		"only libvirt says so":          {nil, launcherapi.Moved, nil, 0, 1, launcherapi.Moved},
		"not whole, and it crashed":     {[]string{active, stop, completed}, launcherapi.Crashed, refused, 1, 1, launcherapi.Crashed},
		"not whole, but moved":          {[]string{active, stop, completed}, launcherapi.Moved, refused, 1, 2, launcherapi.Moved},
	} {
		t.Run(name, func(t *testing.T) {
			to, told := listener(t, c.answer)
			v := &Source{to: to, at: launcherapi.Move{ID: "m", Pod: "there"}}
			v.tellEarly(t.Context(), lastWords(t, c.words...))
			if got := told.Load(); got != c.early {
				t.Errorf("told %d times before libvirt speaks", got)
			}
			r := v.HandOver(t.Context(), launcherapi.Report{End: c.libvirt})
			if got := told.Load(); got != c.told || r.End != c.end || (r.To == "there") != (c.end == launcherapi.Moved) {
				t.Errorf("told %d times, and the report is %+v", got, r)
			}
		})
	}
}

// TestTellTooLate: when the controller was told of another end, the target is not told any more.
func TestTellTooLate(t *testing.T) {
	to, told := listener(t, nil)
	v := &Source{to: to}
	r := v.HandOver(t.Context(), launcherapi.Report{End: launcherapi.Crashed})
	v.tellEarly(t.Context(), lastWords(t, active, completed))
	if told.Load() != 0 || r.End != launcherapi.Crashed {
		t.Errorf("told %d times, and the report is %+v", told.Load(), r)
	}
}
