package view

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backup "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshot "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/testing/golden"
	"github.com/berth-vm/berth/internal/virtctl/status"
)

var start = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))
}

func named(name string, second int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: name, CreationTimestamp: at(second)}
}

func machine(name string, says kubevirt.PrintableStatus, why string, disks ...string) *kubevirt.VirtualMachine {
	vm := &kubevirt.VirtualMachine{ObjectMeta: named(name, 0)}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{}
	for _, d := range disks {
		vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, kubevirt.Volume{
			Name: d, VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: name + "-" + d}}})
	}
	vm.Status.PrintableStatus = says
	vm.Status.Conditions = []kubevirt.Condition{{Type: "Ready", Message: why, LastTransitionTime: at(5)}}
	return vm
}

func runs(vm *kubevirt.VirtualMachine, node string) *kubevirt.VirtualMachineInstance {
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: named(vm.Name, 1), Spec: vm.Spec.Template.Spec}
	i.Status.NodeName, i.Status.Phase = node, kubevirt.PhaseRunning
	i.Status.Interfaces = []kubevirt.NetworkInterface{{IP: "10.0.0.7"}}
	for n, p := range []kubevirt.Phase{kubevirt.PhasePending, kubevirt.PhaseScheduling, kubevirt.PhaseScheduled, kubevirt.PhaseRunning} {
		i.Status.PhaseTransitionTimestamps = append(i.Status.PhaseTransitionTimestamps, kubevirt.PhaseTransition{Phase: p, PhaseTransitionTimestamp: at(10 * (n + 1))})
	}
	return i
}

// disk is a DataVolume with its claim, and a volume on a node if it names one.
func (o *Objects) fill(name string, phase cdiv1.DataVolumePhase, progress, why, node string) {
	v := &cdiv1.DataVolume{ObjectMeta: named(name, 2)}
	v.Status.Phase, v.Status.Progress = phase, cdiv1.DataVolumeProgress(progress)
	v.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeReady, Message: why, LastHeartbeatTime: at(20), LastTransitionTime: at(35)}}
	if phase == cdiv1.Succeeded {
		v.Status.Conditions[0].Status = corev1.ConditionTrue
		v.Status.Conditions = append(v.Status.Conditions, cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeBound, Status: corev1.ConditionTrue, LastTransitionTime: at(12)})
	}
	o.Volumes = append(o.Volumes, v)
	class := "local"
	c := &corev1.PersistentVolumeClaim{ObjectMeta: named(name, 2)}
	c.Spec.StorageClassName = &class
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
	c.Status.Phase = corev1.ClaimPending
	if node != "" {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}}
		pv.Spec.StorageClassName, pv.Spec.Capacity = class, c.Spec.Resources.Requests
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Values: []string{node}}}}}}}
		o.PVs[pv.Name] = pv
		c.Spec.VolumeName, c.Status.Phase = pv.Name, corev1.ClaimBound
	}
	o.Claims = append(o.Claims, c)
}

func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

// world has one of everything.
func world() *Objects {
	web, db, old := machine("web", kubevirt.StatusProvisioning, "waiting for its disks: DataVolume web-root is ImportInProgress", "root", "gone"),
		machine("db", kubevirt.StatusRunning, "its guest runs", "root"), machine("old", kubevirt.StatusStopped, "stopped; start it with: virtctl start old", "root")
	o := &Objects{Objects: status.Objects{
		Machines: []*kubevirt.VirtualMachine{web, db, old}, Instances: []*kubevirt.VirtualMachineInstance{runs(db, "node1")}, PVs: map[string]*corev1.PersistentVolume{},
	}}
	o.fill("web-root", cdiv1.ImportInProgress, "42.00%", "Import into web-root in progress", "node2")
	o.Volumes[0].Status.RestartCount = 2
	o.fill("db-root", cdiv1.Succeeded, "100.0%", "", "node1")
	o.fill("old-root", cdiv1.WaitForFirstConsumer, "N/A", "PVC old-root waits for its first consumer", "")
	o.fill("broken", cdiv1.Failed, "N/A", "Failed to import into PVC broken: not an image", "node1")
	o.Speeds = map[string]float64{"team/web-root": 1.5}
	o.Nodes = []*corev1.Node{node("node2", corev1.ConditionTrue), node("node1", corev1.ConditionFalse)}
	o.Nodes[0].Spec.Unschedulable = true
	free := resource.MustParse("30Gi")
	o.Capacities = []*storagev1.CSIStorageCapacity{{StorageClassName: "local", Capacity: &free,
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "node1"}}}}
	o.Measured = map[string]Measure{PoolKey("node1", ""): {Used: 3 << 30, Capacity: 50 << 30}, PoolKey("node1", "fast"): {Used: 1, Capacity: 2}}
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	o.Classes = []*storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "local", Annotations: map[string]string{"storageclass.kubevirt.io/is-default-virt-class": "true"}}, Provisioner: "localdisk.berth.dev", VolumeBindingMode: &waits},
		{ObjectMeta: metav1.ObjectMeta{Name: "strange"}, Provisioner: "example.org/x"},
	}
	block, clone := corev1.PersistentVolumeBlock, cdiv1.CloneStrategySnapshot
	o.Profiles = []*cdiv1.StorageProfile{{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Status: cdiv1.StorageProfileStatus{
		CloneStrategy: &clone, ClaimPropertySets: []cdiv1.ClaimPropertySet{{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &block}},
		Conditions: []cdiv1.StorageProfileCondition{{ConditionState: cdiv1.ConditionState{Message: "Provisioner localdisk.berth.dev is known"}}}}}}
	return o
}

func check(t *testing.T, name string, value any) {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, filepath.Join("testdata", name+".yaml"), string(text))
}

// TestOverview keeps what is shown of everything in testdata.
func TestOverview(t *testing.T) {
	check(t, "overview", world().Overview())
	strange := world()
	strange.Nodes, strange.PVs = nil, nil // of a person who may read neither
	check(t, "overview-little", strange.Overview())
}

// TestPage keeps what is shown of machines.
func TestPage(t *testing.T) {
	o := world()
	told := func(reason, kind, name string, second int) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name + reason}, Reason: reason, Message: reason + " of " + name, FirstTimestamp: at(second),
			LastTimestamp: at(second), InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Type: corev1.EventTypeNormal, Count: 1}
	}
	events := []*corev1.Event{
		told("WaitForFirstConsumer", "DataVolume", "web-root", 3), told("ImportScheduled", "DataVolume", "web-root", 9), told("ImportInProgress", "DataVolume", "web-root", 11),
		told("ImportRetrying", "DataVolume", "web-root", 15), told("SuccessfulCreate", "VirtualMachine", "web", 1), told("ImportInProgress", "DataVolume", "other", 4),
	}
	shot := &snapshot.VirtualMachineSnapshot{ObjectMeta: named("before", 50)}
	shot.Spec.Source.Name, shot.Status.ReadyToUse, shot.Status.Phase = "db", new(true), snapshot.Succeeded
	o.Snapshots = []*snapshot.VirtualMachineSnapshot{shot}
	back := &snapshot.VirtualMachineRestore{ObjectMeta: named("back", 60)}
	back.Spec.VirtualMachineSnapshotName = "before"
	o.Restores = []*snapshot.VirtualMachineRestore{back}
	o.Trackers = []*backup.VirtualMachineBackupTracker{{ObjectMeta: named("tracked", 1)}, {ObjectMeta: named("other", 1)}}
	o.Trackers[0].Spec.Source.Name, o.Trackers[1].Spec.Source.Name = "db", "web"
	for n, b := range []struct {
		kind, of, condition string
		pulled              bool
	}{{backup.Machine, "db", backup.ConditionComplete, false}, {backup.Tracker, "tracked", backup.ConditionComplete, false}, {backup.Tracker, "other", backup.ConditionComplete, false},
		{backup.Machine, "db", backup.ConditionFailed, false}, {backup.Machine, "db", backup.ConditionProgressing, false}, {backup.Machine, "db", backup.ConditionComplete, true}} {
		made := &backup.VirtualMachineBackup{ObjectMeta: named(fmt.Sprintf("b%d", n), 70+n), Status: &backup.VirtualMachineBackupStatus{Type: backup.Full, CheckpointName: new(fmt.Sprintf("m%d", n)),
			Conditions: []metav1.Condition{{Type: b.condition, Status: metav1.ConditionTrue, Message: "it is " + b.condition}}}}
		made.Spec.Source, made.Spec.PvcName = corev1.TypedLocalObjectReference{Kind: b.kind, Name: b.of}, new("backups")
		if b.pulled {
			made.Spec.Mode = new(backup.PullMode)
		}
		o.Backups = append(o.Backups, made)
	}
	db := slices.IndexFunc(o.Machines, func(m *kubevirt.VirtualMachine) bool { return m.Name == "db" })
	o.Machines[db].UID = "db"
	o.Schedules = schedules("db")
	o.Backups = append(o.Backups, &backup.VirtualMachineBackup{ObjectMeta: named("new", 80)})
	o.Backups[6].Spec.Source = corev1.TypedLocalObjectReference{Kind: backup.Machine, Name: "db"}
	for _, name := range []string{"web", "db", "old"} {
		check(t, "page-"+name, o.Page("team", name, events))
	}
	if p := o.Page("team", "none", events); p != nil {
		t.Errorf("a machine that is not there is %v", p)
	}
}

// schedules are schedules that a machine is in, and one that has a machine of its name that was deleted.
func schedules(uid types.UID) []*accessv1.MachineSchedule {
	made := func(name string, change func(*accessv1.MachineSchedule, *accessv1.ScheduledMachine)) *accessv1.MachineSchedule {
		s := &accessv1.MachineSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
		s.Spec.Schedule, s.Spec.Backup, s.Status.Next = "0 3 * * *", &accessv1.ScheduledBackup{PvcName: "backups"}, new(at(9000))
		m := accessv1.ScheduledMachine{Name: "db", UID: uid, LastSuccess: new(at(40)), Kept: 7, Message: "the last one is good"}
		change(s, &m)
		s.Status.Machines = []accessv1.ScheduledMachine{m}
		return s
	}
	return []*accessv1.MachineSchedule{
		made("nightly", func(s *accessv1.MachineSchedule, _ *accessv1.ScheduledMachine) { s.Spec.TimeZone = "Europe/Berlin" }),
		made("late", func(_ *accessv1.MachineSchedule, m *accessv1.ScheduledMachine) {
			m.Overdue, m.Message = new(at(90)), "there should be one"
		}),
		made("first", func(s *accessv1.MachineSchedule, m *accessv1.ScheduledMachine) {
			s.Spec.Backup, s.Spec.Snapshot = nil, &accessv1.ScheduledSnapshot{}
			m.LastSuccess, m.Kept, m.Message = nil, 0, ""
		}),
		made("held", func(s *accessv1.MachineSchedule, _ *accessv1.ScheduledMachine) { s.Spec.Suspend = true }),
		made("before", func(_ *accessv1.MachineSchedule, m *accessv1.ScheduledMachine) { m.UID = "deleted" }),
	}
}

// TestStepsOnce: what a disk and its claim both tell is one step, also if a step of another disk comes between; what is told again and
// again is as old as its first time.
func TestStepsOnce(t *testing.T) {
	o := &Objects{Objects: status.Objects{PVs: map[string]*corev1.PersistentVolume{}}}
	o.Machines = []*kubevirt.VirtualMachine{machine("web", kubevirt.StatusWaitingForVolumeBinding, "held", "root", "data")}
	o.fill("web-root", cdiv1.WaitForFirstConsumer, "N/A", "held", "")
	o.fill("web-data", cdiv1.WaitForFirstConsumer, "N/A", "held", "")
	told := func(kind, name string, second int) *corev1.Event {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: kind + name}, Reason: "WaitForFirstConsumer",
			EventTime: metav1.NewMicroTime(at(second).Time), InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}}
		if kind == "PersistentVolumeClaim" && name == "web-data" {
			e.Series = &corev1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(at(100).Time)}
		}
		return e
	}
	events := []*corev1.Event{told("DataVolume", "web-root", 3), told("DataVolume", "web-data", 4),
		told("PersistentVolumeClaim", "web-root", 5), told("PersistentVolumeClaim", "web-data", 6)}
	var got []string
	for _, s := range o.Page("team", "web", events).Steps {
		got = append(got, s.At.Format("05")+" "+s.What+" "+s.Of)
	}
	want := []string{"00 created ", "02 disk asked for root", "02 disk asked for data", "03 held until a node is chosen root", "04 held until a node is chosen data"}
	if !slices.Equal(got, want) {
		t.Errorf("the steps are %q, want %q", got, want)
	}
}

// TestLists keeps golden images and classes.
func TestLists(t *testing.T) {
	o := world()
	ready := &cdiv1.DataSource{ObjectMeta: named("fedora", 0)}
	ready.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Name: "fedora-1"}
	ready.Status.Conditions = []cdiv1.DataSourceCondition{{Type: cdiv1.DataSourceReady, ConditionState: cdiv1.ConditionState{Status: corev1.ConditionTrue}}}
	cron := func(name, manages string) *cdiv1.DataImportCron {
		c := &cdiv1.DataImportCron{ObjectMeta: named(name, 0)}
		c.Spec.ManagedDataSource, c.Spec.Schedule = manages, "0 3 * * *"
		c.Status.Conditions = []cdiv1.DataImportCronCondition{{Type: cdiv1.DataImportCronUpToDate, ConditionState: cdiv1.ConditionState{Message: "No current import"}}}
		return c
	}
	o.Images, o.Crons = []*cdiv1.DataSource{ready}, []*cdiv1.DataImportCron{cron("fedora-cron", "fedora"), cron("debian-cron", "debian")}
	check(t, "images", o.Golden())
	check(t, "classes", o.AllClasses())
}
