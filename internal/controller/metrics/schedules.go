package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
)

var (
	scheduleReady = prometheus.NewDesc("berth_machine_schedule_ready", "1 if the MachineSchedule can be carried out, 0 if it cannot be read",
		[]string{"namespace", "schedule"}, nil)
	scheduleSuccess = prometheus.NewDesc("berth_machine_schedule_last_success_timestamp_seconds",
		"The time that the last good backup or snapshot of the machine was scheduled for; a machine without one is left out", []string{"namespace", "schedule", "machine"}, nil)
	scheduleOverdue = prometheus.NewDesc("berth_machine_schedule_overdue_seconds",
		"For how long there should have been another good backup or snapshot of the machine; 0: the last one is not too old", []string{"namespace", "schedule", "machine"}, nil)
)

// Schedules shows at each scrape how old the backups of machines are.
type Schedules struct {
	Reader client.Reader
	Now    func() time.Time
}

// Describe is for Prometheus.
func (Schedules) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{scheduleReady, scheduleSuccess, scheduleOverdue} {
		out <- d
	}
}

// Collect is for Prometheus.
func (s Schedules) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var all accessv1.MachineScheduleList
	if s.Reader.List(ctx, &all, uncopied) != nil {
		return
	}
	for i := range all.Items {
		of := &all.Items[i]
		ready := 1.0
		if meta.IsStatusConditionFalse(of.Status.Conditions, accessv1.ScheduleReady) {
			ready = 0
		}
		out <- prometheus.MustNewConstMetric(scheduleReady, prometheus.GaugeValue, ready, of.Namespace, of.Name)
		for _, m := range of.Status.Machines {
			if m.LastSuccess != nil {
				out <- prometheus.MustNewConstMetric(scheduleSuccess, prometheus.GaugeValue, float64(m.LastSuccess.Unix()), of.Namespace, of.Name, m.Name)
			}
			late := 0.0
			if m.Overdue != nil {
				late = max(0, s.Now().Sub(m.Overdue.Time).Seconds())
			}
			out <- prometheus.MustNewConstMetric(scheduleOverdue, prometheus.GaugeValue, late, of.Namespace, of.Name, m.Name)
		}
	}
}
