package netserver

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCrashedToolRunsAgain: a tool that crashes once is run once more; one that fails is not, and neither is one that crashes twice.
func TestCrashedToolRunsAgain(t *testing.T) {
	for script, want := range map[string]struct {
		ok   bool
		runs int
	}{
		`[ $(wc -c <$0) = 2 ] || kill -ABRT $$`: {true, 2},
		`kill -SEGV $$`:                         {false, 2},
		`exit 1`:                                {false, 1},
		`kill -KILL $$`:                         {false, 1},
		`true`:                                  {true, 1},
	} {
		file := filepath.Join(t.TempDir(), "runs")
		_, err := run(nil, "sh", "-c", "printf x >>$0; "+script, file)
		runs, readErr := os.ReadFile(file)
		if (err == nil) != want.ok || readErr != nil || len(runs) != want.runs {
			t.Errorf("%s: ran %d times: %v", script, len(runs), err)
		}
	}
}
