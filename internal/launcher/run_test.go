package launcher

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestWordOfTheAgent: the machine starts with the go file, also if no file says whether the node has an agent.
func TestWordOfTheAgent(t *testing.T) {
	for said, want := range map[string]bool{"": false, "none": true, "none\n": true, "some": false} {
		dir := t.TempDir()
		for name, text := range map[string]string{launcherapi.GoFile: "yes", launcherapi.TaskFile: `{"name": "vm"}`, launcherapi.AgentFile: said} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if m, err := await(t.Context(), dir); err != nil || m.Name != "vm" || m.NoAgent != want {
			t.Errorf("%q: %+v, %v", said, m, err)
		}
	}
}
