package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

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
