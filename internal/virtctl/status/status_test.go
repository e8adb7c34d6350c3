package status

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/testing/golden"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

var (
	now    = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	before = func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
)

func machine(status kubevirt.PrintableStatus, why string, since time.Duration) *kubevirt.VirtualMachine {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}}
	vm.Status.PrintableStatus = status
	reasonSince := before(since)
	vm.Status.Conditions = []kubevirt.Condition{{
		Type: "Ready", Message: why, LastTransitionTime: before(since + time.Hour), LastProbeTime: &reasonSince}}
	return vm
}

func volume(name string, phase cdiv1.DataVolumePhase, progress, why string) *cdiv1.DataVolume {
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Status.Phase, v.Status.Progress = phase, cdiv1.DataVolumeProgress(progress)
	v.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeReady, Message: why, LastHeartbeatTime: before(8 * time.Second)}}
	return v
}

func claim(name string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: before(90 * time.Second)},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
}

func on(node string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Values: []string{node}}}}}}}
	return pv
}

func pod(name, claim, node string, labels map[string]string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: before(2 * time.Hour)}}
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	return p
}

func consumer(why string) corev1.Pod {
	p := pod("virt-launcher-web-consumer", "web-root", "", map[string]string{render.LabelDomain: "web", render.LabelMachine: "virt-launcher"})
	p.Annotations = map[string]string{render.AnnConsumer: "true"}
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: why, LastTransitionTime: before(26 * time.Hour)}}
	return p
}

// TestTree keeps what a person sees in testdata.
func TestTree(t *testing.T) {
	worker := map[string]string{render.LabelApp: render.App}
	launcher := map[string]string{render.LabelDomain: "web", render.LabelMachine: "virt-launcher"}
	populated := claim("web-data", corev1.ClaimPending)
	populated.Annotations = map[string]string{annProgress: "12.00%", annState: "ImportInProgress", annMessage: "try 2 failed: 404; next try at 12:01"}
	running := &kubevirt.VirtualMachineInstance{}
	running.Status.NodeName = "node2"
	copied := running.DeepCopy()
	copied.Status.VolumeStatus = []kubevirt.VolumeStatus{
		{Name: "root", Copy: &kubevirt.CopyStatus{Mode: kubevirt.CopyOnRead, Medium: "ssd", Stored: new(resource.MustParse("110Mi")), Progress: "45%", Reason: "Filling"}},
		{Name: "tools", Copy: &kubevirt.CopyStatus{Mode: kubevirt.CopyOnWrite, Medium: "node", Reason: "OnMaster"}},
	}
	kept := copied.DeepCopy()
	kept.Status.VolumeStatus[0].Copy.Keep = &kubevirt.KeepStatus{ClaimName: "mine", Reason: kubevirt.KeepUnderWay, Progress: "12%", Message: "PersistentVolumeClaim mine is being written"}
	tracked := before(2 * time.Hour)
	daily := backupv1.VirtualMachineBackupTracker{ObjectMeta: metav1.ObjectMeta{Name: "daily"}}
	daily.Spec.Source.Name, daily.Status = "web", &backupv1.VirtualMachineBackupTrackerStatus{LatestCheckpoint: &backupv1.BackupCheckpoint{Name: "b2-0a1b2c3d", CreationTime: &tracked}}
	backedUp := func(name, tracker string, ago time.Duration) backupv1.VirtualMachineBackup {
		b := backupv1.VirtualMachineBackup{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: before(ago)}}
		b.Spec.Source = corev1.TypedLocalObjectReference{Kind: backupv1.Tracker, Name: tracker}
		b.Status = &backupv1.VirtualMachineBackupStatus{Type: backupv1.Incremental, Conditions: []metav1.Condition{{Type: backupv1.ConditionComplete,
			Status: metav1.ConditionTrue, Message: "the backup is complete: what changed since the backup before"}}}
		return b
	}
	nightly := accessv1.MachineSchedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}}
	nightly.Status.Machines = []accessv1.ScheduledMachine{{Name: "db", Reason: "LastFailed"},
		{Name: "web", Reason: "UpToDate", Message: "the last one is good: b2; the next one is made at 2026-11-16 02:30 UTC", Removal: "old backups are being removed"}}
	for name, s := range map[string]*Seen{
		"backups": {
			Machine: machine(kubevirt.StatusRunning, "its guest runs: pod virt-launcher-web on node node2", time.Minute), Instance: running,
			Backups: Backups{Trackers: []backupv1.VirtualMachineBackupTracker{daily, {ObjectMeta: metav1.ObjectMeta{Name: "of-another"}}}, Schedules: []accessv1.MachineSchedule{nightly},
				All: []backupv1.VirtualMachineBackup{backedUp("b1", "daily", 26*time.Hour), backedUp("b2", "daily", 2*time.Hour), backedUp("b3", "of-another", time.Hour)}},
		},
		"kept": {
			Machine: machine(kubevirt.StatusRunning, "its guest runs: pod virt-launcher-web on node node2", time.Minute), Instance: kept,
			Disks: []Disk{{Disk: kube.Disk{Name: "root", Claim: "golden"}, PVC: claim("golden", corev1.ClaimBound), PV: on("node2")}},
		},
		"copied": {
			Machine: machine(kubevirt.StatusRunning, "its guest runs: pod virt-launcher-web on node node2", time.Minute), Instance: copied,
			Disks: []Disk{{Disk: kube.Disk{Name: "root", Claim: "golden"}, PVC: claim("golden", corev1.ClaimBound), PV: on("node2")}},
			Pods:  []corev1.Pod{pod("virt-launcher-web", "golden", "node2", launcher)},
		},
		"stopped": {Machine: machine(kubevirt.StatusStopped, "stopped; start it with: virtctl start web", 49*time.Hour)},
		"filling": {
			Machine: machine(kubevirt.StatusProvisioning, "waiting for its disks: DataVolume web-root is ImportInProgress", 12*time.Second),
			Disks: []Disk{
				{Disk: kube.Disk{Name: "root", Claim: "web-root"}, PVC: claim("web-root", corev1.ClaimBound), PV: on("node2"),
					Volume: volume("web-root", cdiv1.ImportInProgress, "42.00%", "Import into web-root in progress")},
				{Disk: kube.Disk{Name: "data", Claim: "web-data"}, PVC: populated},
				{Disk: kube.Disk{Name: "more", Claim: "more"}},
			},
			Pods: []corev1.Pod{
				pod("importer-web-root", "web-root", "node2", worker), pod("importer-prime", "prime-uid-of-web-data", "node2", worker),
				pod("stranger", "other", "node1", nil),
			},
		},
		"unschedulable": {
			Machine: machine(kubevirt.StatusUnschedulable, "no node can run it, and nothing was bound", time.Minute),
			Disks: []Disk{{Disk: kube.Disk{Name: "root", Claim: "web-root"}, PVC: claim("web-root", corev1.ClaimPending),
				Volume: volume("web-root", cdiv1.WaitForFirstConsumer, "N/A", "PVC web-root waits for its first consumer")}},
			Pods: []corev1.Pod{consumer("0/3 nodes are available: 3 Insufficient memory.")},
		},
		"running": {
			Machine: machine(kubevirt.StatusRunning, "its guest runs: pod virt-launcher-web on node node2", 65*time.Minute), Instance: running,
			Disks: []Disk{{Disk: kube.Disk{Name: "root", Claim: "web-root"}, PVC: claim("web-root", corev1.ClaimBound), PV: on("node2"),
				Volume: volume("web-root", cdiv1.Succeeded, "100.0%", "Successfully imported into PVC web-root")}},
			Pods: []corev1.Pod{
				pod("virt-launcher-web", "web-root", "node2", launcher),
				pod("hp-volume-web", "web-root", "node2", map[string]string{render.LabelMachine: render.HotplugDisk}),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			if err := s.Tree().Write(&got, now); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}
