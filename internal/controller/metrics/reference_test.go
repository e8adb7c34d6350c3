package metrics

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-vm/berth/internal/localdisk"
	"github.com/berth-vm/berth/internal/upload/proxy"
)

//go:generate go test -run ^TestReference$ . -update

var update = flag.Bool("update", false, "write the reference page")

const referencePage = "../../../docs/reference/metrics.md"

// described is how Prometheus' library prints what a metric is.
var described = regexp.MustCompile(`fqName: "([^"]*)", help: "([^"]*)", constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}`)

// TestReference holds the reference page to what the collectors describe.
func TestReference(t *testing.T) {
	var page bytes.Buffer
	page.WriteString("# Metrics\n\nWritten from the code by `go generate ./internal/controller/metrics`; do not edit.\n\n" +
		"Each program serves its own on port 8080, path `/metrics`, beside those of its runtime. Names that begin with\n" +
		"`kubevirt_cdi` are CDI's, for the alerts and dashboards that know them.\n")
	for _, p := range programs(t) {
		rows := rows(t, p.collectors...)
		if len(rows) < 5 {
			t.Errorf("%s has %d metrics: are they still read?", p.name, len(rows))
		}
		page.WriteString("\n## " + p.name + "\n\n| metric | labels | |\n|---|---|---|\n" + strings.Join(rows, ""))
	}
	if *update {
		if err := os.WriteFile(referencePage, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), page.String()); diff != "" {
		t.Errorf("run go generate ./internal/controller/metrics (-want +got):\n%s", diff)
	}
}

// program is one that serves metrics.
type program struct {
	name       string
	collectors []prometheus.Collector
}

func programs(t *testing.T) []program {
	t.Helper()
	transfers, err := NewTransfers(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return []program{
		{"The controller", []prometheus.Collector{Now{}, Machines{}, transfers.total, transfers.bytes, transfers.duration}},
		{"The upload proxy", []prometheus.Collector{proxy.NewMeter()}},
		{"The local disk driver of each node", []prometheus.Collector{localdisk.Metrics{}}},
	}
}

// rows has one for each metric, in the order of their names.
func rows(t *testing.T, collectors ...prometheus.Collector) []string {
	t.Helper()
	descriptions := make(chan *prometheus.Desc, 64)
	for _, c := range collectors {
		c.Describe(descriptions)
	}
	close(descriptions)
	var out []string
	for d := range descriptions {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("%s is not described as expected", d)
		}
		labels := ""
		for label := range strings.SplitSeq(m[3], ",") {
			if label != "" {
				labels += " `" + label + "`"
			}
		}
		out = append(out, fmt.Sprintf("| `%s` |%s | %s |\n", m[1], labels, m[2]))
	}
	slices.Sort(out)
	return out
}
