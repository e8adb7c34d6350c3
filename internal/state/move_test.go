package state

import (
	"strings"
	"testing"
)

// TestRowsOfMoves: each row is there once, and leaves no blank.
func TestRowsOfMoves(t *testing.T) {
	seen := map[string]bool{}
	row := func(reason, text string) {
		if seen[reason] {
			t.Errorf("%s: two rows", reason)
		}
		seen[reason] = true
		if text == "" || strings.ContainsAny(text, "{}") {
			t.Errorf("%s: %q", reason, text)
		}
	}
	for _, r := range MigrationRows() {
		row("migration "+string(r.Reason), r.Text("detail"))
	}
	for _, r := range EvacuationRows() {
		row("evacuation "+string(r.Reason), r.Text("team/web", "detail"))
	}
	for _, r := range UpdateRows() {
		row("update "+string(r.Reason), r.Text("detail"))
	}
	for _, r := range UpdateCauseRows() {
		text := OfUpdateCause(r.Cause, "root", "other", "detail")
		if row("update cause "+string(r.Cause), text); !strings.Contains(text, "root") || !strings.Contains(text, ": ") {
			t.Errorf("%s does not say of what, or what to do: %s", r.Cause, text)
		}
	}
	for _, r := range FixedRows() {
		row("fixed "+string(r.Cause), r.Text("root", "detail"))
		if text := r.Text("root", "detail"); !strings.Contains(text, ": ") && !strings.Contains(text, "; ") {
			t.Errorf("%s does not say what to do: %s", r.Cause, text)
		}
	}
}
