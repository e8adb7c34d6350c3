package proxy

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Meter counts the uploads of a proxy for Prometheus. A nil Meter counts nothing.
type Meter struct {
	active, waiting, places prometheus.Gauge
	bytes                   prometheus.Counter
	requests                *prometheus.CounterVec
}

// NewMeter returns a Meter with zero counts.
func NewMeter() *Meter {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return &Meter{
		active:  gauge("berth_uploads_active", "Uploads under way: requests whose data is handed to a worker at this moment"),
		waiting: gauge("berth_uploads_waiting", "Requests of uploads that wait for their worker, or for a place"),
		places:  gauge("berth_upload_places", "How many requests the proxy hands on at once"),
		bytes:   prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_upload_bytes_total", Help: "Bytes that clients have sent"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_upload_requests_total", Help: "Requests of uploads that were answered, by the code of the answer",
		}, []string{"code"}),
	}
}

func (m *Meter) parts() []prometheus.Collector {
	return []prometheus.Collector{m.active, m.waiting, m.places, m.bytes, m.requests}
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(out chan<- *prometheus.Desc) {
	for _, p := range m.parts() {
		p.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (m *Meter) Collect(out chan<- prometheus.Metric) {
	for _, p := range m.parts() {
		p.Collect(out)
	}
}

// wait counts a request that waits, until the function is called.
func (m *Meter) wait() (end func()) {
	if m == nil {
		return func() {}
	}
	m.waiting.Inc()
	return m.waiting.Dec
}

// send counts a request whose data is handed on, until the function is called.
func (m *Meter) send() (end func()) {
	if m == nil {
		return func() {}
	}
	m.active.Inc()
	return m.active.Dec
}

func (m *Meter) sent(bytes int) {
	if m != nil {
		m.bytes.Add(float64(bytes))
	}
}

func (m *Meter) answered(code int) {
	if m != nil {
		m.requests.WithLabelValues(strconv.Itoa(code)).Inc()
	}
}
