package populate

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// standing returns a DataSource that stands for something.
func standing(namespace, name string, of cdiv1.DataSourceSource) *cdiv1.DataSource {
	d := &cdiv1.DataSource{ObjectMeta: named(namespace), Spec: cdiv1.DataSourceSpec{Source: of}}
	d.Name = name
	return d
}

func ofClaim(namespace string) cdiv1.DataSourceSource {
	return cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "golden"}}
}

func ofDataSource(name string) cdiv1.DataSourceSource {
	return cdiv1.DataSourceSource{DataSource: &cdiv1.DataSourceRefSourceDataSource{Namespace: filltest.Team, Name: name}}
}

// byDataSource are claims that name a DataSource, and where that leads.
func byDataSource() []scenario {
	at, waits := filltest.Class(filltest.AtOnce), filltest.Class(filltest.Waits)
	in := func(objects ...client.Object) []client.Object { return objects }
	done := []task.Report{filltest.Done()}
	here, abroad := from("DataSource", ""), from("DataSource", "images")
	moved := abroad.DeepCopy()
	clonesource.MoveNamespace(moved)
	golden, theirs, team := filltest.Bound(filltest.Team, "golden"), filltest.Bound("images", "golden"), filltest.Team
	snapshot := cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: team, Name: "kept"}}
	return []scenario{
		{name: "DataSource of a claim", objects: in(at, golden, standing(team, "src", ofClaim(team))), target: here, reports: done,
			said: state.PopulationDone, bound: true},
		{name: "DataSource of a claim without a namespace", objects: in(at, golden, standing(team, "src", ofClaim(""))), target: here, reports: done,
			said: state.PopulationDone, bound: true},
		{name: "DataSource of a DataSource", objects: in(waits, golden, standing(team, "src", ofDataSource("os")), standing(team, "os", ofClaim(team))),
			target: here, reports: done, consumed: true, said: state.PopulationDone, bound: true},
		{name: "DataSource of a snapshot", objects: slices.Concat(in(waits, standing(team, "src", snapshot)), filltest.Driver(),
			filltest.Nodes(filltest.Node, "node2"), filltest.Snapshot(team, "kept", "node2", corev1.PersistentVolumeFilesystem)),
			target: here, reports: done, consumed: true, home: "node2", said: state.PopulationDone, bound: true},
		{name: "DataSource of another namespace", objects: in(waits, theirs, standing("images", "src", ofClaim("images")), grant("cdi.kubevirt.io", "DataSource")),
			target: moved, reports: done, consumed: true, said: state.PopulationDone, bound: true},
		{name: "DataSource of another namespace, not granted", objects: in(at, theirs, standing("images", "src", ofClaim("images"))), target: moved,
			said: state.SourceUngranted},
		{name: "DataSource of another namespace, which grants other kinds",
			objects: in(at, theirs, standing("images", "src", ofClaim("images")), grant("cdi.kubevirt.io", "VolumeCloneSource")), target: abroad,
			said: state.SourceUngranted},
		{name: "DataSource here of a claim of another namespace", objects: in(at, theirs, standing(team, "src", ofClaim("images"))), target: here,
			said: state.SourceUngranted},
		{name: "DataSource here of a claim of another namespace, by a DataSource",
			objects: in(at, theirs, standing(team, "src", ofDataSource("os")), standing(team, "os", ofClaim("images")), grant("cdi.kubevirt.io", "DataSource")),
			target:  here, said: state.SourceUngranted},
		{name: "DataSource here of a claim of another namespace that grants it",
			objects: in(at, theirs, standing(team, "src", ofClaim("images")), grant("", "PersistentVolumeClaim")), target: here, reports: done,
			said: state.PopulationDone, bound: true},
		{name: "no DataSource", objects: in(at), target: here, said: state.SourceAbsent},
		{name: "DataSource of nothing", objects: in(at, standing(team, "src", cdiv1.DataSourceSource{})), target: here, said: state.SourceBroken},
		{name: "DataSource of itself", objects: in(at, standing(team, "src", ofDataSource("src"))), target: here, said: state.SourceBroken},
		{name: "DataSource of a DataSource that is not there", objects: in(at, standing(team, "src", ofDataSource("os"))), target: here,
			said: state.SourceBroken},
	}
}

// TestDataSourceTurns: a DataSource that is pointed into another namespace while a claim is filled from it has the claim begin
// again, and needs that namespace's permission.
func TestDataSourceTurns(t *testing.T) {
	d := standing(filltest.Team, "src", ofClaim(filltest.Team))
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), filltest.Bound(filltest.Team, "golden"),
		filltest.Bound("images", "golden"), d, from("DataSource", "")}, Reports: []task.Report{filltest.Retry()}})
	r := build(w)
	step := func(times int) {
		for range times {
			_, err := r.Reconcile(t.Context(), reconcileRequest())
			w.Must(err)
			w.Turn()
		}
	}
	step(4)
	if len(w.Left()["pods"].([]string)) == 0 {
		t.Fatal("nothing was begun")
	}
	d = filltest.Get[cdiv1.DataSource](w, filltest.Team, "src")
	d.Spec.Source = ofClaim("images")
	w.Must(w.API.Update(t.Context(), d))
	step(3)
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
	prime := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(c))
	if left := w.Left(); len(left["pods"].([]string)) != 0 || prime != nil || c.Annotations[cluster.AnnState] != string(state.SourceUngranted) {
		t.Errorf("left are %v, prime %v, it says %s", left, prime != nil, c.Annotations[cluster.AnnState])
	}
}

// TestDataSourceWakes: claims are brought back by what a DataSource stands for, however many DataSources are in between.
func TestDataSourceWakes(t *testing.T) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{})
	scheme.AddKnownTypes(cdiv1.SchemeGroupVersion, &cdiv1.VolumeCloneSourceList{}, &cdiv1.DataSource{}, &cdiv1.DataSourceList{})
	r := &Reconciler{reader: fake.NewClientBuilder().WithScheme(scheme).WithIndex(&corev1.PersistentVolumeClaim{}, refIndex, refOf).WithObjects(
		from("DataSource", ""), standing(filltest.Team, "src", ofDataSource("os")), standing(filltest.Team, "os", ofClaim("images")),
		standing(filltest.Team, "other", ofClaim("images"))).Build()}
	for what, due := range map[string]int{
		"claim":      len(r.cloning(t.Context(), filltest.Bound("images", "golden"))),
		"next":       len(r.standing(t.Context(), standing(filltest.Team, "os", ofClaim("images")))),
		"permission": len(r.referring(t.Context(), grant("", "PersistentVolumeClaim"))),
		"DataSource": len(r.standing(t.Context(), standing(filltest.Team, "src", ofClaim("images")))),
	} {
		if due != 1 {
			t.Errorf("the %s brings back %d claims", what, due)
		}
	}
	if due := r.cloning(t.Context(), filltest.Bound(filltest.Team, "golden")); len(due) != 0 {
		t.Errorf("a claim of another namespace with the same name brings back %v", due)
	}
}
