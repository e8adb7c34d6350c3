package cron

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/decide/cron"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

const (
	name   = "fedora"
	oneDay = "0 0 * * *"

	credentials = "kubevirt.io/dynamic-credentials-support"

	digest1 = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	digest2 = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

func daily(change func(*cdiv1.DataImportCron)) *cdiv1.DataImportCron {
	spec := filltest.Spec()
	c := &cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: name, UID: "cron-uid"},
		Spec: cdiv1.DataImportCronSpec{
			Schedule: oneDay, ManagedDataSource: "os", ImportsToKeep: ptr.To[int32](2),
			Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{PVC: &spec, Source: &cdiv1.DataVolumeSource{
				Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://registry:5000/os/fedora:42")},
			}}},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func answer(digest string) task.Report {
	r := filltest.Done()
	r.Digest = digest
	return r
}

// importer plays what fills DataVolumes, and stops the clock: a cron is never at rest, so the loop is one day's.
type importer struct {
	*Reconciler
	w     *filltest.World
	phase cdiv1.DataVolumePhase
}

func (i importer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	_, err := i.Reconciler.Reconcile(ctx, req)
	var all cdiv1.DataVolumeList
	i.w.Must(i.w.API.List(ctx, &all))
	i.claims(ctx, all.Items)
	for k := range all.Items {
		if v := &all.Items[k]; v.Status.Phase != i.phase && i.phase != "" {
			v.Status.Phase = i.phase
			i.w.Must(i.w.API.Status().Update(ctx, v))
			return ctrl.Result{RequeueAfter: time.Millisecond}, err
		}
	}
	return ctrl.Result{}, err
}

// claims are there as long as their DataVolumes are.
func (i importer) claims(ctx context.Context, volumes []cdiv1.DataVolume) {
	var all corev1.PersistentVolumeClaimList
	i.w.Must(i.w.API.List(ctx, &all))
	for k := range all.Items {
		c := &all.Items[k]
		kept := slices.ContainsFunc(volumes, func(v cdiv1.DataVolume) bool { return v.Name == c.Name })
		if !kept && strings.HasPrefix(c.Name, "os-") {
			i.w.Must(i.w.API.Delete(ctx, c))
		}
	}
	for _, v := range volumes {
		if filltest.Get[corev1.PersistentVolumeClaim](i.w, v.Namespace, v.Name) == nil {
			made := filltest.Bound(v.Namespace, v.Name)
			made.Labels = map[string]string{credentials: "true", Label: "another"} // as its image says
			i.w.Must(i.w.API.Create(ctx, made))
		}
	}
}

// snapshots makes the claims' storage one whose golden images are better kept as snapshots.
func snapshots(class string) []client.Object {
	p := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: "local"}}
	p.Status.DataImportCronSourceFormat = ptr.To(cdiv1.DataImportCronSourceFormatSnapshot)
	if class != "" {
		p.Status.SnapshotClass = &class
	}
	return []client.Object{p}
}

func build(phase cdiv1.DataVolumePhase) func(*filltest.World) reconcile.Reconciler {
	return func(w *filltest.World) reconcile.Reconciler {
		return importer{w: w, phase: phase, Reconciler: &Reconciler{
			reader: w.API, live: w.API, settings: config.NewReader(w.API), cluster: w.Writer, clock: w.Clock, image: "berth",
		}}
	}
}

func outcome(w *filltest.World) any {
	left := w.Left()
	c := filltest.Get[cdiv1.DataImportCron](w, filltest.Team, name)
	left["digest"], left["status"] = c.Annotations[annDigest], c.Status
	if ds := filltest.Get[cdiv1.DataSource](w, filltest.Team, "os"); ds != nil {
		left["source"] = ds.Spec
	}
	if vcs := filltest.Get[cdiv1.VolumeCloneSource](w, filltest.Team, "os"); vcs != nil {
		left["clones"] = vcs.Spec
	}
	left["volumes"], left["snapshots"] = kept(w)
	return left
}

// kept returns the names of the imports, in both forms.
func kept(w *filltest.World) (volumes, snapshots []string) {
	var all cdiv1.DataVolumeList
	w.Must(w.API.List(context.Background(), &all))
	for _, v := range all.Items {
		volumes = append(volumes, v.Name)
	}
	cut := &volumesnapshot.List{}
	w.Must(w.API.List(context.Background(), cut))
	for i := range cut.Items {
		snapshots = append(snapshots, cut.Items[i].GetName())
	}
	return volumes, snapshots
}

func TestLoop(t *testing.T) {
	for _, sc := range []struct {
		name    string
		cron    *cdiv1.DataImportCron
		objects []client.Object
		report  task.Report
		phase   cdiv1.DataVolumePhase
		says    cron.Reason
	}{
		{name: "imported", cron: daily(nil), report: answer(digest1), phase: cdiv1.Succeeded, says: cron.UpToDate},
		{name: "importing", cron: daily(nil), report: answer(digest1), phase: cdiv1.ImportInProgress, says: cron.ImportProgressing},
		{name: "failed", cron: daily(nil), report: answer(digest1), phase: cdiv1.Failed, says: cron.Outdated},
		{name: "no answer", cron: daily(nil), report: filltest.Retry(), says: cron.NoDigest},
		{name: "taken", cron: daily(nil), report: answer(digest1), says: cron.AlreadyManaged, objects: []client.Object{&cdiv1.DataSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "os", Labels: map[string]string{Label: "another"}},
		}}},
		{name: "no schedule", cron: daily(func(c *cdiv1.DataImportCron) { c.Spec.Schedule = "often" }), says: cron.Invalid},
		{name: "a claim", cron: daily(func(c *cdiv1.DataImportCron) {
			c.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: filltest.Team, Name: "golden"}}
		}), objects: []client.Object{filltest.Bound(filltest.Team, "golden")}, phase: cdiv1.Succeeded, says: cron.UpToDate},
		{name: "kept as a snapshot", cron: daily(nil), report: answer(digest1), phase: cdiv1.Succeeded, says: cron.UpToDate, objects: snapshots("snap")},
		{name: "never asked", cron: daily(func(c *cdiv1.DataImportCron) { c.Spec.Schedule = "" }), says: cron.NoDigest},
	} {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			scene := filltest.Scene{Objects: append(sc.objects, sc.cron), Reports: []task.Report{sc.report}}
			calm := filltest.WithFaults(t, scene, name, build(sc.phase), outcome)
			c := filltest.Get[cdiv1.DataImportCron](calm, filltest.Team, name)
			if got := condition(c.Status, cdiv1.DataImportCronUpToDate); got.Reason != string(sc.says) {
				t.Errorf("it says %s (%s), want %s", got.Reason, got.Message, sc.says)
			}
		})
	}
}

// TestNewVersions: every day brings another version. The names follow when it is there, the oldest goes, and what is
// imported is the version that was seen.
func TestNewVersions(t *testing.T) {
	w := filltest.New(t, filltest.Scene{
		Objects: []client.Object{daily(nil)}, Reports: []task.Report{answer(digest1), answer(digest2), answer(digest1), answer("sha256:3333333333333333")},
	})
	r := build(cdiv1.Succeeded)(w)
	for day, want := range []struct {
		current string
		imports int
	}{{"os-111111111111", 1}, {"os-222222222222", 2}, {"os-111111111111", 2}, {"os-333333333333", 2}} {
		w.Run(name, r)
		ds := filltest.Get[cdiv1.DataSource](w, filltest.Team, "os")
		vcs := filltest.Get[cdiv1.VolumeCloneSource](w, filltest.Team, "os")
		if ds.Spec.Source.PVC.Name != want.current || vcs.Spec.Source.Name != want.current {
			t.Errorf("day %d: the names stand for %s and %s, want %s", day, ds.Spec.Source.PVC.Name, vcs.Spec.Source.Name, want.current)
		}
		var all cdiv1.DataVolumeList
		w.Must(w.API.List(context.Background(), &all))
		if len(all.Items) != want.imports {
			t.Errorf("day %d: %d imports, want %d", day, len(all.Items), want.imports)
		}
		c := filltest.Get[cdiv1.DataImportCron](w, filltest.Team, name)
		if c.Status.LastImportedPVC == nil || c.Status.LastImportedPVC.Name != want.current {
			t.Errorf("day %d: last imported %v", day, c.Status.LastImportedPVC)
		}
		w.Clock.SetTime(w.Clock.Now().Add(24 * time.Hour))
	}
	v := filltest.Get[cdiv1.DataVolume](w, filltest.Team, "os-333333333333")
	if got := *v.Spec.Source.Registry.URL; got != "docker://registry:5000/os/fedora@sha256:3333333333333333" {
		t.Errorf("imported from %s", got)
	}
	if v.Labels[Label] != name || len(v.OwnerReferences) != 0 {
		t.Errorf("labels %v, owners %v", v.Labels, v.OwnerReferences)
	}
	var pods corev1.PodList
	w.Must(w.API.List(context.Background(), &pods))
	if len(pods.Items) != 0 {
		t.Errorf("%d polls are left", len(pods.Items))
	}
}

// TestSnapshots: imports become snapshots, the names stand for those, their claims go, and as many are kept as of claims. When
// the storage changes its mind, the image is imported again and the snapshot goes.
func TestSnapshots(t *testing.T) {
	w := filltest.New(t, filltest.Scene{
		Objects: append(snapshots("snap"), daily(nil)),
		Reports: []task.Report{answer(digest1), answer(digest2), answer("sha256:3333333333333333"), answer("sha256:3333333333333333")},
	})
	p := filltest.Get[cdiv1.StorageProfile](w, "", "local")
	p.Annotations = map[string]string{annSnapshotClass: "for-images"}
	w.Must(w.API.Update(context.Background(), p))
	r := build(cdiv1.Succeeded)(w)
	for day, want := range [][]string{
		{"os-111111111111"}, {"os-111111111111", "os-222222222222"}, {"os-222222222222", "os-333333333333"},
	} {
		w.Run(name, r)
		volumes, snapshots := kept(w)
		if len(volumes) != 0 || !slices.Equal(snapshots, want) {
			t.Errorf("day %d: volumes %v, snapshots %v, want %v", day, volumes, snapshots, want)
		}
		current := want[len(want)-1]
		ds := filltest.Get[cdiv1.DataSource](w, filltest.Team, "os").Spec.Source
		if ds.PVC != nil || ds.Snapshot == nil || ds.Snapshot.Name != current || ds.Snapshot.Namespace != filltest.Team {
			t.Errorf("day %d: the DataSource stands for %+v", day, ds)
		}
		vcs := filltest.Get[cdiv1.VolumeCloneSource](w, filltest.Team, "os").Spec.Source
		if vcs.Kind != "VolumeSnapshot" || vcs.Name != current || *vcs.APIGroup != "snapshot.storage.k8s.io" {
			t.Errorf("day %d: the VolumeCloneSource stands for %+v", day, vcs)
		}
		c := filltest.Get[cdiv1.DataImportCron](w, filltest.Team, name).Status
		if *c.SourceFormat != cdiv1.DataImportCronSourceFormatSnapshot || c.LastImportedPVC.Name != current {
			t.Errorf("day %d: the status is %+v", day, c)
		}
		w.Clock.SetTime(w.Clock.Now().Add(24 * time.Hour))
	}
	cut := &volumesnapshot.Snapshot{}
	w.Must(w.API.Get(context.Background(), client.ObjectKey{Namespace: filltest.Team, Name: "os-333333333333"}, cut))
	if cut.Labels[credentials] != "true" || cut.Labels[Label] != name {
		t.Errorf("the snapshot has the labels %v", cut.Labels)
	}
	if by := ptr.Deref(cut.Spec.VolumeSnapshotClassName, ""); by != "for-images" {
		t.Errorf("the snapshot was taken with class %s", by)
	}
	p = filltest.Get[cdiv1.StorageProfile](w, "", "local")
	p.Status.DataImportCronSourceFormat = ptr.To(cdiv1.DataImportCronSourceFormatPvc)
	w.Must(w.API.Update(context.Background(), p))
	w.Run(name, r)
	volumes, snapshots := kept(w)
	if !slices.Equal(volumes, []string{"os-333333333333"}) || !slices.Equal(snapshots, []string{"os-222222222222"}) {
		t.Errorf("back to claims: volumes %v, snapshots %v", volumes, snapshots)
	}
	if ds := filltest.Get[cdiv1.DataSource](w, filltest.Team, "os").Spec.Source; ds.Snapshot != nil || ds.PVC == nil {
		t.Errorf("back to claims: the DataSource stands for %+v", ds)
	}
}

// TestNoSnapshotClass: storage that cannot take snapshots keeps its images as claims, whatever its profile prefers.
func TestNoSnapshotClass(t *testing.T) {
	w := filltest.New(t, filltest.Scene{Objects: append(snapshots(""), daily(nil)), Reports: []task.Report{answer(digest1)}})
	w.Run(name, build(cdiv1.Succeeded)(w))
	c := filltest.Get[cdiv1.DataImportCron](w, filltest.Team, name).Status
	if *c.SourceFormat != cdiv1.DataImportCronSourceFormatPvc || condition(c, cdiv1.DataImportCronUpToDate).Reason != string(cron.UpToDate) {
		t.Errorf("the status is %+v", c)
	}
}

// TestOnce: the modes of an import are left to its storage profile, unless that says that one node is enough for images.
func TestOnce(t *testing.T) {
	for name, row := range map[string]struct {
		says  string
		class *string
		asks  []corev1.PersistentVolumeAccessMode
		want  []corev1.PersistentVolumeAccessMode
	}{
		"nothing said":     {want: nil},
		"said":             {says: "true", class: ptr.To("local"), want: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
		"of the default":   {says: "true", want: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
		"asked for itself": {says: "true", asks: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, want: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}},
	} {
		class := filltest.Class(filltest.AtOnce)
		class.Annotations = map[string]string{claim.DefaultClassAnnotation: "true"}
		profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: "local", Annotations: map[string]string{annOnce: row.says}}}
		w := filltest.New(t, filltest.Scene{Reports: []task.Report{answer(digest1)}, Objects: []client.Object{class, profile, daily(func(c *cdiv1.DataImportCron) {
			c.Spec.Template.Spec.PVC, c.Spec.Template.Spec.Storage = nil, &cdiv1.StorageSpec{StorageClassName: row.class, AccessModes: row.asks}
		})}})
		w.Run("fedora", build(cdiv1.ImportInProgress)(w))
		if got := filltest.Get[cdiv1.DataVolume](w, filltest.Team, "os-111111111111").Spec.Storage.AccessModes; !slices.Equal(got, row.want) {
			t.Errorf("%s: the import asks for %v, want %v", name, got, row.want)
		}
	}
}

// TestConditions: both conditions say what CDI's clients know.
func TestConditions(t *testing.T) {
	const none = "False NoImport: No current import"
	for phase, want := range map[cdiv1.DataVolumePhase][2]string{
		"":                     {"False ImportScheduled: Import is scheduled", "False ImportProgressing: Import is progressing"},
		cdiv1.Pending:          {"False Pending: Import DataVolume phase Pending", "False ImportProgressing: Import is progressing"},
		cdiv1.ImportScheduled:  {"False ImportScheduled: Import is scheduled", "False ImportProgressing: Import is progressing"},
		cdiv1.ImportInProgress: {"True ImportProgressing: Import is progressing", "False ImportProgressing: Import is progressing"},
		cdiv1.Succeeded:        {none, "True UpToDate: Latest import is up to date"},
	} {
		w := filltest.New(t, filltest.Scene{Objects: []client.Object{daily(nil)}, Reports: []task.Report{answer(digest1)}})
		w.Run(name, build(phase)(w))
		status := filltest.Get[cdiv1.DataImportCron](w, filltest.Team, name).Status
		for i, kind := range []cdiv1.DataImportCronConditionType{cdiv1.DataImportCronProgressing, cdiv1.DataImportCronUpToDate} {
			c := condition(status, kind)
			if got := fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message); got != want[i] {
				t.Errorf("import %q: %s is %q, want %q", phase, kind, got, want[i])
			}
		}
	}
}

func TestPin(t *testing.T) {
	for url, want := range map[string]string{
		"docker://registry:5000/a/b:tag": "docker://registry:5000/a/b@sha256:1", "docker://registry:5000/a/b": "docker://registry:5000/a/b@sha256:1",
		"docker://a/b@sha256:0": "docker://a/b@sha256:1", "oci-archive:///x": "oci-archive:///x",
	} {
		if got := pin(url, "sha256:1"); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}
