// Package metrics shows both sides to Prometheus: what is in the cluster now, under the names CDI's alerts and
// dashboards know, and what the transfers came to. It reads the controller's cache when it is scraped and changes
// nothing.
package metrics

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/task"
)

// scrapeTimeout bounds reading the cache; a scrape that takes longer is given up by Prometheus anyway.
const scrapeTimeout = 5 * time.Second

// uncopied makes the cache return its objects without copies. A scrape only reads them, and a copy of all objects of a cluster
// would be too large.
const uncopied = client.UnsafeDisableDeepCopy

var (
	importProgress = prometheus.NewDesc("kubevirt_cdi_import_progress_total",
		"How much of an import is done, in percent", []string{"ownerUID", "namespace", "name"}, nil)
	cloneProgress = prometheus.NewDesc("kubevirt_cdi_clone_progress_total",
		"How much of a clone is done, in percent", []string{"ownerUID", "namespace", "name"}, nil)
	pending = prometheus.NewDesc("kubevirt_cdi_datavolume_pending", "DataVolumes that are Pending", nil, nil)
	ready   = prometheus.NewDesc("kubevirt_cdi_cr_ready", "1 if there is a CDI resource that is Deployed", nil, nil)
	phases  = prometheus.NewDesc("berth_datavolumes", "DataVolumes by phase", []string{"phase"}, nil)
	profile = prometheus.NewDesc("kubevirt_cdi_storageprofile_info", "StorageProfiles and what is known of them",
		[]string{"storageclass", "provisioner", "complete", "rwx"}, nil)
)

// outdated is 1 for a cron whose managed names do not stand for what its source has. Alerts leave out those whose import only
// waits for a storage class.
var outdated = prometheus.NewDesc("kubevirt_cdi_dataimportcron_outdated", "DataImportCron has an outdated import",
	[]string{"ns", "cron_name", "pending"}, nil)

// Now counts objects of the cluster at each scrape.
type Now struct{ Reader client.Reader }

// Describe implements prometheus.Collector.
func (Now) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{importProgress, cloneProgress, pending, ready, phases, profile, outdated, volumeOldest, volumeRetries} {
		out <- d
	}
}

// Collect implements prometheus.Collector. Metrics that cannot be read are left out: a missing series is noticed, a wrong one is not.
func (n Now) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var volumes cdiv1.DataVolumeList
	if n.Reader.List(ctx, &volumes, uncopied) == nil {
		collectVolumes(volumes.Items, out)
		collectWaiting(volumes.Items, time.Now(), out)
		var crons cdiv1.DataImportCronList
		if n.Reader.List(ctx, &crons, uncopied) == nil {
			collectCrons(crons.Items, volumes.Items, out)
		}
	}
	var cdis cdiv1.CDIList
	if n.Reader.List(ctx, &cdis, uncopied) == nil {
		deployed := 0.0
		for _, c := range cdis.Items {
			if c.Status.Phase == "Deployed" {
				deployed = 1
			}
		}
		out <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, deployed)
	}
	var profiles cdiv1.StorageProfileList
	if n.Reader.List(ctx, &profiles, uncopied) == nil {
		for _, p := range profiles.Items {
			out <- prometheus.MustNewConstMetric(profile, prometheus.GaugeValue, 1, p.Name, deref(p.Status.Provisioner),
				strconv.FormatBool(len(p.Status.ClaimPropertySets) > 0), strconv.FormatBool(shared(p)))
		}
	}
}

func collectVolumes(volumes []cdiv1.DataVolume, out chan<- prometheus.Metric) {
	count := map[cdiv1.DataVolumePhase]float64{cdiv1.Pending: 0}
	for _, v := range volumes {
		count[v.Status.Phase]++
		desc := importProgress
		switch v.Status.Phase { //nolint:exhaustive // only these two have a progress to show
		case cdiv1.ImportInProgress:
		case cdiv1.CloneInProgress:
			desc = cloneProgress
		default:
			continue
		}
		percent, err := strconv.ParseFloat(strings.TrimSuffix(string(v.Status.Progress), "%"), 64)
		if err == nil {
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, percent, string(v.UID), v.Namespace, v.Name)
		}
	}
	out <- prometheus.MustNewConstMetric(pending, prometheus.GaugeValue, count[cdiv1.Pending])
	for phase, n := range count {
		out <- prometheus.MustNewConstMetric(phases, prometheus.GaugeValue, n, string(phase))
	}
}

func collectCrons(crons []cdiv1.DataImportCron, volumes []cdiv1.DataVolume, out chan<- prometheus.Metric) {
	waiting := map[string]bool{}
	for _, v := range volumes {
		waiting[v.Namespace+"/"+v.Name] = v.Status.Phase == cdiv1.Pending
	}
	for _, c := range crons {
		behind, waits := 1.0, false
		for _, one := range c.Status.Conditions {
			if one.Type == cdiv1.DataImportCronUpToDate && one.Status == corev1.ConditionTrue {
				behind = 0
			}
		}
		for _, one := range c.Status.CurrentImports {
			waits = waits || waiting[c.Namespace+"/"+one.DataVolumeName]
		}
		out <- prometheus.MustNewConstMetric(outdated, prometheus.GaugeValue, behind, c.Namespace, c.Name, strconv.FormatBool(waits))
	}
}

func shared(p cdiv1.StorageProfile) bool {
	for _, set := range p.Status.ClaimPropertySets {
		for _, mode := range set.AccessModes {
			if mode == corev1.ReadWriteMany {
				return true
			}
		}
	}
	return false
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Transfers counts what workers report.
type Transfers struct {
	total    *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewTransfers registers the counters.
func NewTransfers(to prometheus.Registerer) (*Transfers, error) {
	t := &Transfers{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_transfers_total", Help: "Workers that ended, by flow and what they reported",
		}, []string{"flow", "outcome", "reason"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_transfer_bytes_total", Help: "Bytes that workers read from sources and wrote to volumes",
		}, []string{"flow", "direction"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_transfer_duration_seconds", Help: "How long workers ran",
			Buckets: prometheus.ExponentialBuckets(1, 2, 14), // 1 s to more than two hours
		}, []string{"flow", "outcome"}),
	}
	for _, c := range []prometheus.Collector{t.total, t.bytes, t.duration} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Ended counts one worker. A worker that left no report counts as one to be tried again.
func (t *Transfers) Ended(flow string, r *task.Report, took time.Duration) {
	if t == nil {
		return // a reconciler without metrics
	}
	outcome, reason := string(task.Retry), "NoReport"
	if r != nil {
		outcome, reason = string(r.Outcome), string(r.Reason)
		t.bytes.WithLabelValues(flow, "read").Add(float64(max(r.Read, 0)))
		t.bytes.WithLabelValues(flow, "written").Add(float64(max(r.Written, 0)))
	}
	t.total.WithLabelValues(flow, outcome, reason).Inc()
	t.duration.WithLabelValues(flow, outcome).Observe(took.Seconds())
}
