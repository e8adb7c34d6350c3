package localdisk

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-vm/berth/internal/testing/metricpage"
)

//go:generate go test -run ^TestReference$ . -update

// TestReference holds the reference page to what the driver's metrics say themselves.
func TestReference(t *testing.T) {
	metricpage.Hold(t, "../../../docs/reference/metrics-localdisk.md",
		"Metrics of the local disk driver\n\nWritten from the code by `go -C driver generate ./...`; do not edit.\n\n"+
			"The driver's pod on each node serves them on port 8080, path `/metrics`.\n",
		metricpage.Program{Name: "Pools", Collectors: []prometheus.Collector{Metrics{}}})
}
