package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
)

var (
	machines = prometheus.NewDesc("berth_machines", "Machines by status and by the reason they give for it", []string{"status", "reason"}, nil)
	vms      = prometheus.NewDesc("kubevirt_number_of_vms", "VirtualMachines by namespace", []string{"namespace"}, nil)
	waiting  = prometheus.NewDesc("berth_machines_waiting", "Machines that are to run and do not, by reason", []string{"reason"}, nil)
	oldest   = prometheus.NewDesc("berth_machines_oldest_waiting_seconds",
		"For how long the machine that has waited longest has given its reason; 0: none waits", nil, nil)
	outdatedVMIs = prometheus.NewDesc("kubevirt_vmi_number_of_outdated", "Instances whose guest runs in an older launcher image than a new one would", nil, nil)

	volumeOldest = prometheus.NewDesc("berth_datavolumes_oldest_waiting_seconds",
		"For how long the unfinished DataVolume that has said nothing new the longest has been in that phase", []string{"phase"}, nil)
	volumeRetries = prometheus.NewDesc("berth_datavolume_retries",
		"How often the transfer of an unfinished DataVolume was begun again; those without a retry are left out", []string{"namespace", "name"}, nil)
)

// Machines counts machines at each scrape.
type Machines struct {
	Reader client.Reader
	Now    func() time.Time
}

// Describe implements prometheus.Collector.
func (Machines) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{machines, vms, waiting, oldest, outdatedVMIs} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m Machines) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var list kubevirt.VirtualMachineList
	if m.Reader.List(ctx, &list, uncopied) != nil {
		return
	}
	type is struct{ status, reason string }
	count, namespaces, waits := map[is]float64{}, map[string]float64{}, map[string]float64{}
	longest := time.Duration(0)
	for i := range list.Items {
		vm := &list.Items[i]
		reason, since, ready := given(vm)
		count[is{string(vm.Status.PrintableStatus), reason}]++
		namespaces[vm.Namespace]++
		if toRun(vm) && !ready {
			waits[reason]++
			longest = max(longest, m.Now().Sub(since))
		}
	}
	for s, n := range count {
		out <- prometheus.MustNewConstMetric(machines, prometheus.GaugeValue, n, s.status, s.reason)
	}
	for namespace, n := range namespaces {
		out <- prometheus.MustNewConstMetric(vms, prometheus.GaugeValue, n, namespace)
	}
	for reason, n := range waits {
		out <- prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, n, reason)
	}
	out <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, longest.Seconds())
	var old kubevirt.VirtualMachineInstanceList
	if m.Reader.List(ctx, &old, client.HasLabels{kubevirt.LabelOutdated}, uncopied) == nil {
		out <- prometheus.MustNewConstMetric(outdatedVMIs, prometheus.GaugeValue, float64(len(old.Items)))
	}
}

// given returns the reason a machine gives for how it is, since when, and whether it is ready.
func given(vm *kubevirt.VirtualMachine) (reason string, since time.Time, ready bool) {
	for _, c := range vm.Status.Conditions {
		if c.Type != "Ready" {
			continue
		}
		since = c.LastTransitionTime.Time
		if c.LastProbeTime != nil { // when it first gave this reason
			since = c.LastProbeTime.Time
		}
		return c.Reason, since, c.Status == corev1.ConditionTrue
	}
	return "", vm.CreationTimestamp.Time, false
}

// toRun reports whether it should run: it is not being deleted and not paused.
func toRun(vm *kubevirt.VirtualMachine) bool {
	reason, _, _ := given(vm)
	return vm.DeletionTimestamp == nil && reason != string(state.PausedByUser) && (vm.Spec.Strategy() == kubevirt.RunAlways || vm.Status.Created)
}

// collectWaiting is how long volumes that are not finished have waited, and how often each was tried.
func collectWaiting(volumes []cdiv1.DataVolume, now time.Time, out chan<- prometheus.Metric) {
	longest := map[cdiv1.DataVolumePhase]time.Duration{}
	for i := range volumes {
		v := &volumes[i]
		if v.Status.Phase == cdiv1.Succeeded {
			continue
		}
		since := v.CreationTimestamp.Time
		for _, c := range v.Status.Conditions {
			if c.Type == cdiv1.DataVolumeReady { // the heartbeat is when the volume last said something new
				since = c.LastHeartbeatTime.Time
			}
		}
		longest[v.Status.Phase] = max(longest[v.Status.Phase], now.Sub(since))
		if v.Status.RestartCount > 0 && v.Status.Phase != cdiv1.Failed {
			out <- prometheus.MustNewConstMetric(volumeRetries, prometheus.GaugeValue, float64(v.Status.RestartCount), v.Namespace, v.Name)
		}
	}
	for phase, d := range longest {
		out <- prometheus.MustNewConstMetric(volumeOldest, prometheus.GaugeValue, d.Seconds(), string(phase))
	}
}
