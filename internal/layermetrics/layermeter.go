// Package layermetrics shows the counts of a node's cache of layers to Prometheus. The cache has no port of its own: the node
// agent asks it for each scrape.
//
// It does not know where the cache is.
package layermetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-vm/berth/internal/transfer/layercache"
)

// Meter asks for the counts at every scrape.
type Meter struct {
	Ask func() (layercache.Counts, error)
}

var up = prometheus.NewDesc("berth_layers_up", "1 if the node's cache of layers says its counts; if not, the others are missing", nil, nil)

// rows are the counts.
var rows = []struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(layercache.Counts) int64
}{
	{describe("berth_layers", "Layers of container images that the node keeps for its machines"), prometheus.GaugeValue,
		func(c layercache.Counts) int64 { return c.Layers }},
	{describe("berth_layers_bytes", "Bytes that they take on the node, with those that are being made"), prometheus.GaugeValue,
		func(c layercache.Counts) int64 { return c.Bytes }},
	{describe("berth_layers_limit_bytes", "Bytes that they may take"), prometheus.GaugeValue, func(c layercache.Counts) int64 { return c.Bound }},
	{describe("berth_layers_made_total", "Layers that were converted"), prometheus.CounterValue, func(c layercache.Counts) int64 { return c.Made }},
	{describe("berth_layers_shared_total", "Layers that a machine was given and that were there already"), prometheus.CounterValue,
		func(c layercache.Counts) int64 { return c.Shared }},
	{describe("berth_layers_evicted_total", "Layers that were removed to make room, or because another program had locked them"), prometheus.CounterValue,
		func(c layercache.Counts) int64 { return c.LetGo }},
	{describe("berth_layers_refused_total", "Machines that were refused, and made their layers themselves"), prometheus.CounterValue,
		func(c layercache.Counts) int64 { return c.Refused }},
}

func describe(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }

// Describe implements prometheus.Collector.
func (Meter) Describe(to chan<- *prometheus.Desc) {
	to <- up
	for _, r := range rows {
		to <- r.desc
	}
}

// Collect implements prometheus.Collector.
func (m Meter) Collect(to chan<- prometheus.Metric) {
	n, err := m.Ask()
	if err != nil {
		to <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, 0)
		return
	}
	to <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, 1)
	for _, r := range rows {
		to <- prometheus.MustNewConstMetric(r.desc, r.kind, float64(r.of(n)))
	}
}
