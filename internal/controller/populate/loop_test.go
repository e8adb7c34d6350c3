package populate

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

const name = "disk"

// scenario is a claim, what it names, and where that leads.
type scenario struct {
	name     string
	objects  []client.Object
	target   *corev1.PersistentVolumeClaim
	reports  []task.Report
	consumed bool
	home     string // the scene's
	ignorant bool   // the scene's
	said     state.Reason
	bound    bool
}

func scenarios() []scenario {
	at, waits := filltest.Class(filltest.AtOnce), filltest.Class(filltest.Waits)
	in := func(objects ...client.Object) []client.Object { return objects }
	done := []task.Report{filltest.Done()}
	imports, uploads, clones := from("VolumeImportSource", ""), from("VolumeUploadSource", ""), from("VolumeCloneSource", "")
	abroad := from("VolumeCloneSource", "images")
	backups := from(accessv1.VolumeBackupSourceKind, "")
	backups.Spec.DataSourceRef.APIGroup = &accessv1.GroupVersion.Group
	moved := abroad.DeepCopy()
	clonesource.MoveNamespace(moved)
	atOnce := imports.DeepCopy()
	atOnce.Annotations = map[string]string{names.Immediate: ""}
	restored := imports.DeepCopy()
	restored.Annotations = map[string]string{names.PopulatedFor: name}
	named := imports.DeepCopy()
	named.Spec.VolumeName = "pv-kept"
	bound := imports.DeepCopy()
	bound.Spec.VolumeName, bound.Status.Phase = "pv-kept", corev1.ClaimBound
	blank := imports.DeepCopy()
	blank.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	classless := imports.DeepCopy()
	classless.Spec.StorageClassName = ptr.To("other")
	golden, snapshots := filltest.Bound(filltest.Team, "golden"), filltest.Driver()
	return []scenario{
		{name: "import", objects: in(at, importing()), target: imports, reports: done, said: state.PopulationDone, bound: true},
		{name: "import on the consumer's node", objects: in(waits, importing()), target: imports, reports: done, consumed: true,
			said: state.PopulationDone, bound: true},
		{name: "from a backup", objects: append(filltest.BoundOn("backups", "node1"), at, backup()), target: backups, reports: done, said: state.PopulationDone, bound: true},
		{name: "no consumer", objects: in(waits, importing()), target: imports, said: state.PopulationWaits},
		{name: "no consumer needed", objects: in(waits, importing()), target: atOnce, reports: done, said: state.PopulationDone, bound: true},
		{name: "fatal", objects: in(at, importing()), target: imports, reports: []task.Report{filltest.Fatal()},
			said: state.Import.Reason(state.GivenUp)},
		{name: "blank device", objects: in(at, blankDisk()), target: blank, reports: done, said: state.PopulationDone, bound: true},
		{name: "upload", objects: in(waits, uploading()), target: uploads, reports: done, consumed: true, said: state.PopulationDone, bound: true},
		{name: "clone by copying", objects: in(at, golden, cloning(filltest.Team)), target: clones, reports: done,
			said: state.PopulationDone, bound: true},
		{name: "clone by snapshot", objects: append(in(waits, golden, cloning(filltest.Team)), snapshots...), target: clones, reports: done,
			consumed: true, said: state.PopulationDone, bound: true},
		{name: "clone across namespaces", objects: in(waits, filltest.Bound("images", "golden"), cloning("images"), grant("cdi.kubevirt.io", "VolumeCloneSource")),
			target: abroad, reports: done, consumed: true, said: state.PopulationDone, bound: true},
		{name: "clone of a snapshot on another node", objects: slices.Concat(in(waits, cloningSnapshot()), snapshots,
			filltest.Nodes(filltest.Node, "node2"), filltest.Snapshot(filltest.Team, "kept", "node2", corev1.PersistentVolumeFilesystem)),
			target: clones, reports: done, consumed: true, home: "node2", said: state.PopulationDone, bound: true},
		{name: "not granted", objects: in(at, filltest.Bound("images", "golden"), cloning("images")), target: abroad, said: state.SourceUngranted},
		{name: "clone across namespaces without the gate", objects: in(waits, filltest.Bound("images", "golden"), cloning("images"), grant("cdi.kubevirt.io", "VolumeCloneSource")),
			target: moved, reports: done, consumed: true, said: state.PopulationDone, bound: true},
		{name: "not granted, without the gate", objects: in(at, filltest.Bound("images", "golden"), cloning("images")), target: moved, said: state.SourceUngranted},
		{name: "no source", objects: in(at), target: imports, said: state.SourceAbsent},
		{name: "no such class", objects: in(at, importing()), target: classless, said: state.ClasslessTarget},
		{name: "restored", objects: in(at, importing()), target: restored, said: state.PopulationKept},
		{name: "restored with its volume's name", objects: in(at, importing()), target: named, said: state.PopulationKept},
		{name: "bound", objects: in(at, importing()), target: bound, said: state.PopulationSkipped, bound: true},
	}
}

func TestLoop(t *testing.T) {
	for _, sc := range append(scenarios(), byDataSource()...) {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			scene := filltest.Scene{Objects: append(sc.objects, sc.target), Reports: sc.reports, Home: sc.home, Ignorant: sc.ignorant}
			if sc.consumed {
				scene.Consumed = []string{name}
			}
			calm := filltest.WithFaults(t, scene, name, build, outcome)
			c := filltest.Get[corev1.PersistentVolumeClaim](calm, filltest.Team, name)
			if said := c.Annotations[cluster.AnnState]; said != string(sc.said) {
				t.Errorf("it says %s, want %s: %s", said, sc.said, c.Annotations[cluster.AnnRunningMessage])
			}
			if bound := c.Status.Phase == corev1.ClaimBound; bound != sc.bound {
				t.Errorf("bound is %t, want %t", bound, sc.bound)
			}
			prime := filltest.Get[corev1.PersistentVolumeClaim](calm, filltest.Team, primeName(c))
			if sc.bound && prime != nil {
				t.Error("the prime is left over")
			}
			// Each worker is made, recorded as a holder of its disks, let run and released; a streamed clone has two.
			if limit := 32 * max(1, len(sc.reports)); calm.Writes > limit {
				t.Errorf("%d writes, more than %d", calm.Writes, limit)
			}
		})
	}
}

func build(w *filltest.World) reconcile.Reconciler {
	engine := fill.New(fill.Parts{
		Reader: w.API, Live: w.API, Writer: w.Writer, Clock: w.Clock, Image: "berth", Tokens: filltest.Allow{},
		Uploads: filltest.Allow{}, Ask: filltest.Silent,
	})
	return &Reconciler{reader: w.API, live: w.API, engine: engine, cluster: w.Writer, clock: w.Clock, grantsWatched: true}
}

func outcome(w *filltest.World) any {
	left := w.Left()
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
	left["annotations"], left["finalizers"], left["phase"] = c.Annotations, c.Finalizers, c.Status.Phase
	return left
}

func from(kind, namespace string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: name, UID: "target-uid"}, Spec: filltest.Spec()}
	c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("cdi.kubevirt.io"), Kind: kind, Name: "src"}
	if namespace != "" {
		c.Spec.DataSourceRef.Namespace = &namespace
	}
	return c
}

func named(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: "src"}
}

func importing() client.Object {
	return &cdiv1.VolumeImportSource{ObjectMeta: named(filltest.Team), Spec: cdiv1.VolumeImportSourceSpec{
		Source: &cdiv1.ImportSourceType{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}},
	}}
}

func backup() client.Object {
	return &accessv1.VolumeBackupSource{ObjectMeta: named(filltest.Team), Spec: accessv1.VolumeBackupSourceSpec{
		Claim: &accessv1.BackupClaim{Name: "backups"}, Checkpoint: "b2", Volume: "root",
	}}
}

func blankDisk() client.Object {
	return &cdiv1.VolumeImportSource{ObjectMeta: named(filltest.Team), Spec: cdiv1.VolumeImportSourceSpec{
		Source: &cdiv1.ImportSourceType{Blank: &cdiv1.DataVolumeBlankImage{}},
	}}
}

func uploading() client.Object { return &cdiv1.VolumeUploadSource{ObjectMeta: named(filltest.Team)} }

func cloning(namespace string) *cdiv1.VolumeCloneSource {
	return &cdiv1.VolumeCloneSource{ObjectMeta: named(namespace), Spec: cdiv1.VolumeCloneSourceSpec{
		Source: corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "golden"},
	}}
}

func cloningSnapshot() *cdiv1.VolumeCloneSource {
	s := cloning(filltest.Team)
	s.Spec.Source = *volumesnapshot.Source("kept")
	return s
}

// grant lets claims of the team refer to everything of a kind in namespace images.
func grant(group, kind string) client.Object {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": filltest.Team}},
		"to":   []any{map[string]any{"group": group, "kind": kind}},
	}}}
	u.SetGroupVersionKind(clonesource.Grant)
	u.SetNamespace("images")
	u.SetName("team")
	return u
}

func reconcileRequest() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: filltest.Team, Name: name}}
}
