package containerimage

import (
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestProgramEnd: the program's status is the machine's end.
func TestProgramEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  launcherapi.End
		said string
		want launcherapi.End
		text string
	}{
		"well":             {launcherapi.PoweredOff, `{"status":0}`, launcherapi.PoweredOff, "ended with status 0"},
		"badly":            {launcherapi.PoweredOff, `{"status":7}`, launcherapi.Failed, "ended with status 7"},
		"a signal":         {launcherapi.PoweredOff, `{"status":139,"signal":"SIGSEGV"}`, launcherapi.Failed, "SIGSEGV (status 139)"},
		"no program":       {launcherapi.PoweredOff, `{"status":127,"error":"/x: no such file"}`, launcherapi.Failed, "could not be run: /x: no such file"},
		"nothing said":     {launcherapi.PoweredOff, "", launcherapi.Failed, "did not say"},
		"nonsense":         {launcherapi.PoweredOff, `{"status":1000}`, launcherapi.Failed, "did not say"},
		"asked to":         {launcherapi.Stopped, `{"status":143,"signal":"SIGTERM"}`, launcherapi.Stopped, "SIGTERM"},
		"killed":           {launcherapi.Killed, "", launcherapi.Killed, "before"},
		"a kernel's panic": {launcherapi.Crashed, `{"status":0}`, launcherapi.Crashed, "before"},
	} {
		got := WithProgramEnd(launcherapi.Report{End: c.end, Detail: "before"}, []byte(c.said))
		if got.End != c.want || !strings.Contains(got.Detail, c.text) {
			t.Errorf("%s: %+v, want %s and %q", name, got, c.want, c.text)
		}
	}
}
