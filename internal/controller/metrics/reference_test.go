package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-vm/berth/internal/layermetrics"
	"github.com/berth-vm/berth/internal/testing/metricpage"
	"github.com/berth-vm/berth/internal/upload/proxy"
)

//go:generate go test -run ^TestReference$ . -update

// TestReference holds the reference page to what the collectors describe.
func TestReference(t *testing.T) {
	metricpage.Hold(t, "../../../docs/reference/metrics.md", "Metrics\n\nWritten from the code by `go generate ./internal/controller/metrics`; do not edit.\n\n"+
		"Each program serves its own on port 8080, path `/metrics`, beside those of its runtime. Names that begin with\n"+
		"`kubevirt_cdi` are CDI's, for the alerts and dashboards that know them. The disk driver's are on [a page of their own](metrics-localdisk.md).\n",
		programs(t)...)
}

func programs(t *testing.T) []metricpage.Program {
	t.Helper()
	transfers, err := NewTransfers(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return []metricpage.Program{
		{Name: "The controller", Collectors: []prometheus.Collector{Now{}, Machines{}, Schedules{}, transfers.total, transfers.bytes, transfers.duration}},
		{Name: "The upload proxy", Collectors: []prometheus.Collector{proxy.NewMeter()}},
		{Name: "The node's agent", Collectors: []prometheus.Collector{layermetrics.Meter{}}},
	}
}
