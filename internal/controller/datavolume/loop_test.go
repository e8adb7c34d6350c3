package datavolume

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

const volumeName = "disk"

// scenario is a volume and how the cluster around it behaves.
type scenario struct {
	name    string
	objects []client.Object
	volume  *cdiv1.DataVolume
	reports []task.Report
	// consumed: some other pod uses the claim once it is held.
	consumed bool
	// later and home are the scene's.
	later []client.Object
	home  string
	phase cdiv1.DataVolumePhase
	// detour: the claim is made twice, or another is made to read from, which takes some more writes.
	detour bool
}

func scenarios() []scenario {
	at, waits := filltest.Class(filltest.AtOnce), filltest.Class(filltest.Waits)
	http := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}}
	done := []task.Report{filltest.Done()}
	block := newVolume(&cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}})
	block.Spec.PVC.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	adopted := newVolume(http)
	adopted.Annotations = map[string]string{"cdi.kubevirt.io/allowClaimAdoption": "true"}
	atOnce := newVolume(http)
	atOnce.Annotations = map[string]string{"cdi.kubevirt.io/storage.bind.immediate.requested": ""}
	lost := filltest.Bound(filltest.Team, volumeName)
	lost.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(newVolume(http), cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	lost.Status.Phase = corev1.ClaimLost
	in := func(objects ...client.Object) []client.Object { return objects }
	device := restoreOf(filltest.Team)
	device.Spec.PVC.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	filesystem := corev1.PersistentVolumeFilesystem
	lone := filltest.Bound(filltest.Team, volumeName)
	return []scenario{
		{name: "import", objects: in(at), volume: newVolume(http), reports: done, phase: cdiv1.Succeeded},
		{name: "held, then consumed", objects: in(waits), volume: newVolume(http), reports: done, consumed: true,
			phase: cdiv1.Succeeded},
		{name: "held for ever", objects: in(waits), volume: newVolume(http), phase: cdiv1.WaitForFirstConsumer},
		{name: "gate off", objects: in(waits, &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi"}}),
			volume: newVolume(http), reports: done, phase: cdiv1.Succeeded},
		{name: "bound at once", objects: in(waits), volume: atOnce, reports: done, phase: cdiv1.Succeeded},
		{name: "second time lucky", objects: in(at), volume: newVolume(http),
			reports: []task.Report{filltest.Retry(), filltest.Done()}, phase: cdiv1.Succeeded},
		{name: "fatal", objects: in(at), volume: newVolume(http), reports: []task.Report{filltest.Fatal()}, phase: cdiv1.Failed},
		{name: "blank device", objects: in(at), volume: block, reports: done, phase: cdiv1.Succeeded},
		{name: "adopted", objects: in(at, lone), volume: adopted, phase: cdiv1.Succeeded},
		{name: "cloned by copying", objects: in(at, filltest.Bound(filltest.Team, "golden")), volume: cloneOf(filltest.Team),
			reports: done, phase: cdiv1.Succeeded},
		{name: "cloned by streaming", objects: in(at, filltest.Bound("images", "golden")), volume: cloneOf("images"),
			reports: []task.Report{filltest.Retry(), filltest.Done()}, phase: cdiv1.Succeeded},
		{name: "clone of nothing", objects: in(at), volume: cloneOf(filltest.Team), phase: cdiv1.Pending},
		{name: "cloned by snapshot", objects: append(in(at, filltest.Bound(filltest.Team, "golden")), filltest.Driver()...),
			volume: cloneOf(filltest.Team), reports: done, phase: cdiv1.Succeeded},
		{name: "uploaded", objects: in(at), volume: newVolume(&cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}),
			reports: done, phase: cdiv1.Succeeded},
		{name: "snapshot restored in place", objects: append(snapshotOn(filltest.Team, "", filesystem), at),
			volume: restoreOf(filltest.Team), reports: done, phase: cdiv1.Succeeded},
		{name: "snapshot of another volume mode", objects: append(snapshotOn(filltest.Team, "", filesystem), at),
			volume: device, reports: done, phase: cdiv1.Succeeded},
		{name: "snapshot of another namespace", detour: true, objects: append(snapshotOn("images", "", filesystem), waits),
			volume: restoreOf("images"), consumed: true, reports: done, phase: cdiv1.Succeeded},
		{name: "snapshot wanted on another node", detour: true, objects: append(snapshotOn(filltest.Team, "node1", filesystem), waits),
			volume: restoreOf(filltest.Team), reports: done, home: "node1", later: in(filltest.Consumer(volumeName, "node2")),
			phase: cdiv1.Succeeded},
		{name: "clone wanted on another node", detour: true, objects: slices.Concat(in(waits), filltest.BoundOn("golden", "node1"),
			filltest.Nodes("node1", "node2"), filltest.Driver()),
			volume: cloneOf(filltest.Team), reports: done, home: "node1", later: in(filltest.Consumer(volumeName, "node2")),
			phase: cdiv1.Succeeded},
		{name: "clone abroad of a source in use", detour: true, objects: append(in(waits, filltest.Bound("images", "golden"), user("images")), filltest.Driver()...),
			volume: cloneOf("images"), consumed: true, reports: done, phase: cdiv1.Succeeded},
		{name: "retained worker", objects: in(at), volume: retained(http), reports: done, phase: cdiv1.Succeeded},
		{name: "retained upload worker", objects: in(at), volume: retained(&cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}),
			reports: done, phase: cdiv1.Succeeded},
		{name: "in stages", objects: in(at), volume: inStages(true, "full", "one", "two"),
			reports: []task.Report{filltest.Done(), filltest.Retry(), filltest.Done(), filltest.Done()}, phase: cdiv1.Succeeded},
		{name: "a stage that cannot be", objects: in(at), volume: inStages(true, "full", "one"),
			reports: []task.Report{filltest.Done(), filltest.Fatal(), filltest.Done()}, phase: cdiv1.Succeeded},
		{name: "a first stage that cannot be", objects: in(at), volume: inStages(false, "full", "one"), reports: []task.Report{filltest.Fatal()}, phase: cdiv1.Failed},
		{name: "in stages, retained", objects: in(at), volume: retainedStages(), reports: []task.Report{filltest.Done(), filltest.Done()}, phase: cdiv1.Succeeded},
		{name: "in stages, paused", objects: in(at), volume: inStages(false, "full", "one"),
			reports: []task.Report{filltest.Done(), filltest.Done()}, phase: cdiv1.Paused},
		{name: "from a backup", objects: append(filltest.BoundOn("backups", "node1"), at, backupIn("backups")), volume: ofBackup(),
			reports: []task.Report{filltest.Retry(), filltest.Done()}, phase: cdiv1.Succeeded},
		{name: "from a backup with a link that is wrong", objects: in(waits, filltest.Bound(filltest.Team, "backups"), backupIn("backups")), volume: ofBackup(), consumed: true,
			reports: []task.Report{filltest.Fatal()}, phase: cdiv1.Failed},
		{name: "claim lost", objects: in(at, lost), volume: newVolume(http), phase: cdiv1.Failed},
		{name: "in the way", objects: in(at, lone), volume: newVolume(http), phase: cdiv1.Pending},
	}
}

func (sc scenario) scene() filltest.Scene {
	s := filltest.Scene{Objects: append(sc.objects, sc.volume), Reports: sc.reports, Later: sc.later, Home: sc.home}
	if sc.consumed {
		s.Consumed = []string{volumeName}
	}
	return s
}

func TestLoop(t *testing.T) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			calm := filltest.WithFaults(t, sc.scene(), volumeName, build, outcome)
			if phase := volumeIn(calm).Status.Phase; phase != sc.phase {
				t.Errorf("phase is %s, want %s", phase, sc.phase)
			}
			if left := calm.Left(); sc.phase == cdiv1.Succeeded && (left["secrets"] != 0 || strings.Contains(fmt.Sprint(left), "volume-uid")) {
				t.Errorf("left of the transfer: %v", left)
			}
			limit := 20 * max(1, len(sc.reports))
			if sc.detour {
				limit += 16 // each worker more is recorded as a holder, let run, and released
			}
			if calm.Writes > limit {
				t.Errorf("%d writes, more than %d", calm.Writes, limit)
			}
		})
	}
}

// retained returns a volume whose worker is to be kept for its log.
func retained(source *cdiv1.DataVolumeSource) *cdiv1.DataVolume {
	v := newVolume(source)
	v.Annotations = map[string]string{names.Retain: "true"}
	return v
}

// TestWorkerIsRetained: the caller for it finds the worker's pod, and its log, when the transfer is over; others do not.
func TestWorkerIsRetained(t *testing.T) {
	http := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}}
	upload := &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
	for name, c := range map[string]struct {
		volume *cdiv1.DataVolume
		want   string
	}{
		"import":        {retained(http), "[team/importer-disk]"},
		"upload":        {retained(upload), "[team/cdi-upload-disk]"},
		"not asked for": {newVolume(http), "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := filltest.New(t, filltest.Scene{
				Objects: []client.Object{filltest.Class(filltest.AtOnce), c.volume}, Reports: []task.Report{filltest.Done()},
			})
			w.Run(volumeName, build(w))
			if left := w.Left(); fmt.Sprint(left["pods"]) != c.want || left["secrets"] != 0 {
				t.Errorf("left are pods %v and %v secrets, want %s and none", left["pods"], left["secrets"], c.want)
			}
		})
	}
}

// TestRestartsAreANumberFromTheStart: clients read the annotation as a number.
func TestRestartsAreANumberFromTheStart(t *testing.T) {
	http := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}}
	w := filltest.New(t, filltest.Scene{
		Objects: []client.Object{filltest.Class(filltest.AtOnce), newVolume(http)}, Reports: []task.Report{filltest.Done()},
	})
	w.Run(volumeName, build(w))
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName)
	if got := c.Annotations["cdi.kubevirt.io/storage.pod.restarts"]; got != "0" {
		t.Errorf("restarts of an import that worked at once: %q", got)
	}
}

func build(w *filltest.World) reconcile.Reconciler {
	return &Reconciler{reader: w.API, cluster: w.Writer, engine: fill.New(fill.Parts{
		Reader: w.API, Live: w.API, Writer: w.Writer, Clock: w.Clock, Image: "berth", Tokens: filltest.Allow{},
		Uploads: filltest.Allow{}, Ask: filltest.Silent,
	})}
}

func volumeIn(w *filltest.World) *cdiv1.DataVolume {
	return filltest.Get[cdiv1.DataVolume](w, filltest.Team, volumeName)
}

func outcome(w *filltest.World) any {
	v := volumeIn(w)
	for i := range v.Status.Conditions {
		v.Status.Conditions[i].LastHeartbeatTime, v.Status.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
	left := w.Left()
	left["status"], left["finalizers"] = v.Status, v.Finalizers
	if c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName); c != nil {
		left["marks"], left["owners"], left["from"] = c.Annotations, c.OwnerReferences, c.Spec.DataSource
	}
	return left
}

func newVolume(source *cdiv1.DataVolumeSource) *cdiv1.DataVolume {
	spec := filltest.Spec()
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: volumeName, UID: "volume-uid"},
		Spec:       cdiv1.DataVolumeSpec{Source: source, PVC: &spec},
	}
}

// snapshotOn returns a snapshot with its data on a node, or everywhere, and what its driver needs.
func snapshotOn(namespace, node string, mode corev1.PersistentVolumeMode) []client.Object {
	return slices.Concat(filltest.Snapshot(namespace, "kept", node, mode), filltest.Nodes("node1", "node2"), filltest.Driver())
}

func restoreOf(namespace string) *cdiv1.DataVolume {
	return newVolume(&cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: "kept"}})
}

// user returns a pod that writes to the golden claim and does not end.
func user(namespace string) *corev1.Pod {
	p := filltest.Consumer("golden", filltest.Node)
	p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase = namespace, "user", filltest.Node, corev1.PodRunning
	return p
}

func cloneOf(namespace string) *cdiv1.DataVolume {
	return newVolume(&cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "golden"}})
}
