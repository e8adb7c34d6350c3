// Package metricpage holds a reference page of metrics to what the collectors of a program say themselves.
//
// It does not know any program.
package metricpage

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

var update = flag.Bool("update", false, "write the reference page")

// Program is one that serves metrics.
type Program struct {
	Name       string
	Collectors []prometheus.Collector
}

// Hold compares the page of these programs with the file, which go generate in the test's package writes.
func Hold(t *testing.T, file, intro string, programs ...Program) {
	t.Helper()
	page := "# " + intro
	for _, p := range programs {
		rows := Rows(t, p.Collectors...)
		if len(rows) < 5 {
			t.Errorf("%s has %d metrics: are they still read?", p.Name, len(rows))
		}
		page += "\n## " + p.Name + "\n\n| metric | labels | |\n|---|---|---|\n" + strings.Join(rows, "")
	}
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), page); diff != "" {
		t.Errorf("run go generate in this folder (-want +got):\n%s", diff)
	}
}

// described is how Prometheus' library prints what a metric is.
var described = regexp.MustCompile(`fqName: "([^"]*)", help: "([^"]*)", constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}`)

// Rows has one for each metric, in the order of their names. The name is the first word in backquotes.
func Rows(t *testing.T, collectors ...prometheus.Collector) []string {
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
