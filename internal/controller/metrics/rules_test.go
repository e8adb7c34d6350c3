package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/metricpage"
)

const monitoring = "../../../config/monitoring/"

// runtimes are the metrics that the runtime serves and that rules and panels name.
var runtimes = []string{"workqueue_depth"}

var (
	named   = regexp.MustCompile(`\b(?:berth|kubevirt|workqueue|localdisk)_[a-z_]+`)
	reasons = regexp.MustCompile(`reason=~?"([^"]+)"`)
)

// TestRulesNameWhatIsThere: every metric and every reason that an alert or a panel names exists, and every alert says what to do.
func TestRulesNameWhatIsThere(t *testing.T) {
	known := append(slices.Clone(runtimes), ofDriver(t)...)
	for _, p := range programs(t) {
		for _, row := range metricpage.Rows(t, p.Collectors...) {
			known = append(known, strings.Split(row, "`")[1])
		}
	}
	check := func(where, expression string) {
		found := named.FindAllString(expression, -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric: %s", where, expression)
		}
		for _, name := range found {
			if !slices.Contains(known, strings.TrimSuffix(name, "_bucket")) {
				t.Errorf("%s names %s, which nobody serves", where, name)
			}
		}
		for _, m := range reasons.FindAllStringSubmatch(expression, -1) {
			for reason := range strings.SplitSeq(m[1], "|") {
				if row := state.OfMachine(state.MachineReason(reason)); row.Status == "Stopped" && row.Message == "{detail}" {
					t.Errorf("%s names the reason %s, which no machine gives", where, reason)
				}
			}
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	read(t, "rules.yaml", &rules)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	read(t, "dashboard.json", &dashboard)
	alerts := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts++
			check(r.Alert, r.Expr)
			for _, word := range []string{"summary", "description", "runbook"} {
				if len(r.Annotations[word]) < 20 || strings.Contains(r.Annotations[word], "\n") {
					t.Errorf("%s has the %s %q", r.Alert, word, r.Annotations[word])
				}
			}
		}
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
		}
	}
	if alerts < 10 || len(dashboard.Panels) < 10 {
		t.Errorf("%d alerts and %d panels: are they still read?", alerts, len(dashboard.Panels))
	}
}

// ofDriver reads the names of the disk driver's metrics from its page, which a test of the driver holds to its code.
func ofDriver(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/reference/metrics-localdisk.md")
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`localdisk_[a-z_]+`).FindAllString(string(page), -1)
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(monitoring + file)
	if err == nil && strings.HasSuffix(file, ".yaml") {
		text, err = yaml.YAMLToJSON(text)
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("read %s: %v", file, err)
	}
}
