package localdisk

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	poolLabels   = []string{"node", "usage_type"}
	poolCapacity = prometheus.NewDesc("localdisk_pool_capacity_bytes", "What a pool has", poolLabels, nil)
	poolUsed     = prometheus.NewDesc("localdisk_pool_used_bytes", "What volumes and snapshots of a pool have written", poolLabels, nil)
	poolPromised = prometheus.NewDesc("localdisk_pool_promised_bytes", "What a pool has promised to volumes, and keeps for snapshots", poolLabels, nil)
	poolLimit    = prometheus.NewDesc("localdisk_pool_limit_bytes", "What a pool may promise: its capacity times the overcommit ratio", poolLabels, nil)
	poolFree     = prometheus.NewDesc("localdisk_pool_free_bytes", "What can still be written to the filesystem of a pool", poolLabels, nil)
	poolVolumes  = prometheus.NewDesc("localdisk_pool_volumes", "Volumes in a pool", poolLabels, nil)
)

// Metrics reports the pools of a node at each scrape.
type Metrics struct{ Pools *Pools }

// Describe implements prometheus.Collector.
func (Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolCapacity, poolUsed, poolPromised, poolLimit, poolFree, poolVolumes} {
		out <- d
	}
}

// Collect implements prometheus.Collector. A pool that cannot be measured is left out: a missing series is noticed, a wrong one is not.
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	drivers := []*Driver{m.Pools.main}
	for _, name := range slices.Sorted(maps.Keys(m.Pools.types)) {
		drivers = append(drivers, m.Pools.types[name])
	}
	for _, d := range drivers {
		r, err := d.pool.measure()
		if err != nil {
			continue
		}
		for desc, value := range map[*prometheus.Desc]int64{
			poolCapacity: r.Capacity, poolUsed: r.Used, poolPromised: r.Promised, poolLimit: r.Limit, poolFree: r.Free, poolVolumes: int64(r.Volumes),
		} {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), d.pool.Node, d.pool.UsageType)
		}
	}
}
