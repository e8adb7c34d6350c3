package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/task"
)

func TestNow(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := cdiv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	volume := func(name string, s cdiv1.DataVolumeStatus) *cdiv1.DataVolume {
		return &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "1"}, Status: s}
	}
	cron := func(name string, current corev1.ConditionStatus, imports string) *cdiv1.DataImportCron {
		c := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		c.Status.CurrentImports = []cdiv1.ImportStatus{{DataVolumeName: imports}}
		c.Status.Conditions = []cdiv1.DataImportCronCondition{{Type: cdiv1.DataImportCronUpToDate, ConditionState: cdiv1.ConditionState{Status: current}}}
		return c
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		volume("a", cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress, Progress: "42.50%"}),
		volume("b", cdiv1.DataVolumeStatus{Phase: cdiv1.Pending}),
		volume("c", cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress, Progress: "N/A"}),
		cron("fresh", corev1.ConditionTrue, "gone"), cron("stale", corev1.ConditionFalse, "a"), cron("waiting", corev1.ConditionFalse, "b"),
	).Build()
	want := `
# HELP kubevirt_cdi_dataimportcron_outdated DataImportCron has an outdated import
# TYPE kubevirt_cdi_dataimportcron_outdated gauge
kubevirt_cdi_dataimportcron_outdated{cron_name="fresh",ns="ns",pending="false"} 0
kubevirt_cdi_dataimportcron_outdated{cron_name="stale",ns="ns",pending="false"} 1
kubevirt_cdi_dataimportcron_outdated{cron_name="waiting",ns="ns",pending="true"} 1
# HELP kubevirt_cdi_cr_ready 1 if there is a CDI resource that is Deployed
# TYPE kubevirt_cdi_cr_ready gauge
kubevirt_cdi_cr_ready 0
# HELP kubevirt_cdi_datavolume_pending DataVolumes that are Pending
# TYPE kubevirt_cdi_datavolume_pending gauge
kubevirt_cdi_datavolume_pending 1
# HELP kubevirt_cdi_import_progress_total How much of an import is done, in percent
# TYPE kubevirt_cdi_import_progress_total counter
kubevirt_cdi_import_progress_total{name="a",namespace="ns",ownerUID="1"} 42.5
`
	err := testutil.CollectAndCompare(Now{Reader: c}, strings.NewReader(want), "kubevirt_cdi_cr_ready",
		"kubevirt_cdi_datavolume_pending", "kubevirt_cdi_import_progress_total", "kubevirt_cdi_dataimportcron_outdated")
	if err != nil {
		t.Error(err)
	}
}

// shares is a reader that fails if it is asked to copy what it hands out.
type shares struct {
	client.Reader
	t *testing.T
}

func (s shares) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	var all client.ListOptions
	all.ApplyOptions(o)
	if all.UnsafeDisableDeepCopy == nil || !*all.UnsafeDisableDeepCopy {
		s.t.Errorf("a scrape copies every object of %T", into)
	}
	return s.Reader.List(ctx, into, o...)
}

// TestNothingIsCopied: a scrape takes no copy of what is in the cluster: there may be tens of thousands of objects.
func TestNothingIsCopied(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(cdiv1.AddToScheme(scheme), kubevirt.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := shares{fake.NewClientBuilder().WithScheme(scheme).Build(), t}
	if n := testutil.CollectAndCount(Now{Reader: c}) + testutil.CollectAndCount(Machines{Reader: c, Now: time.Now}); n < 3 {
		t.Errorf("%d metrics", n)
	}
}

func TestTransfers(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	transfers, err := NewTransfers(registry)
	if err != nil {
		t.Fatal(err)
	}
	transfers.Ended("Import", &task.Report{Outcome: task.Done, Reason: task.Completed, Read: 10, Written: 20}, time.Second)
	transfers.Ended("Import", nil, time.Second)
	want := `
# HELP berth_transfer_bytes_total Bytes that workers read from sources and wrote to volumes
# TYPE berth_transfer_bytes_total counter
berth_transfer_bytes_total{direction="read",flow="Import"} 10
berth_transfer_bytes_total{direction="written",flow="Import"} 20
# HELP berth_transfers_total Workers that ended, by flow and what they reported
# TYPE berth_transfers_total counter
berth_transfers_total{flow="Import",outcome="Done",reason="Completed"} 1
berth_transfers_total{flow="Import",outcome="Retry",reason="NoReport"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "berth_transfer_bytes_total", "berth_transfers_total"); err != nil {
		t.Error(err)
	}
}

// TestMachines: a machine that should run and does not is counted by its reason, with how long the oldest has waited; a stopped
// machine is not.
func TestMachines(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kubevirt.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	machine := func(name string, s kubevirt.RunStrategy, status kubevirt.PrintableStatus, reason string, ready corev1.ConditionStatus, age time.Duration) *kubevirt.VirtualMachine {
		since := metav1.NewTime(now.Add(-age))
		return &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: kubevirt.VirtualMachineSpec{RunStrategy: &s},
			Status: kubevirt.VirtualMachineStatus{PrintableStatus: status, Conditions: []kubevirt.Condition{
				{Type: "Ready", Status: ready, Reason: reason, LastTransitionTime: metav1.NewTime(now.Add(-24 * time.Hour)), LastProbeTime: &since}}}}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		machine("runs", kubevirt.RunAlways, kubevirt.StatusRunning, "GuestRunning", corev1.ConditionTrue, 0),
		machine("off", kubevirt.RunHalted, kubevirt.StatusStopped, "Halted", corev1.ConditionFalse, time.Hour),
		machine("waits", kubevirt.RunAlways, kubevirt.StatusProvisioning, "DiskInUse", corev1.ConditionFalse, 90*time.Second),
		&kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "runs", Labels: map[string]string{kubevirt.LabelOutdated: ""}}},
		machine("paused", kubevirt.RunAlways, kubevirt.StatusPaused, "PausedByUser", corev1.ConditionFalse, time.Hour),
	).Build()
	want := `
# HELP berth_machines Machines by status and by the reason they give for it
# TYPE berth_machines gauge
berth_machines{reason="DiskInUse",status="Provisioning"} 1
berth_machines{reason="GuestRunning",status="Running"} 1
berth_machines{reason="Halted",status="Stopped"} 1
berth_machines{reason="PausedByUser",status="Paused"} 1
# HELP berth_machines_oldest_waiting_seconds For how long the machine that has waited longest has given its reason; 0: none waits
# TYPE berth_machines_oldest_waiting_seconds gauge
berth_machines_oldest_waiting_seconds 90
# HELP berth_machines_waiting Machines that are to run and do not, by reason
# TYPE berth_machines_waiting gauge
berth_machines_waiting{reason="DiskInUse"} 1
# HELP kubevirt_number_of_vms VirtualMachines by namespace
# TYPE kubevirt_number_of_vms gauge
kubevirt_number_of_vms{namespace="ns"} 4
# HELP kubevirt_vmi_number_of_outdated Instances whose guest runs in an older launcher image than a new one would
# TYPE kubevirt_vmi_number_of_outdated gauge
kubevirt_vmi_number_of_outdated 1
`
	if err := testutil.CollectAndCompare(Machines{Reader: c, Now: func() time.Time { return now }}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
