package cron

import (
	"context"
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
	"github.com/berth-vm/berth/internal/controller/filltest"
	"github.com/berth-vm/berth/internal/decide/cron"
	"github.com/berth-vm/berth/internal/task"
)

const (
	name    = "fedora"
	oneDay  = "0 0 * * *"
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
	for k := range all.Items {
		if v := &all.Items[k]; v.Status.Phase != i.phase && i.phase != "" {
			v.Status.Phase = i.phase
			i.w.Must(i.w.API.Status().Update(ctx, v))
			return ctrl.Result{RequeueAfter: time.Millisecond}, err
		}
	}
	return ctrl.Result{}, err
}

func build(phase cdiv1.DataVolumePhase) func(*filltest.World) reconcile.Reconciler {
	return func(w *filltest.World) reconcile.Reconciler {
		return importer{w: w, phase: phase, Reconciler: &Reconciler{
			reader: w.API, settings: config.NewReader(w.API), cluster: w.Writer, clock: w.Clock, image: "berth",
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
	return left
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
	} {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			scene := filltest.Scene{Objects: append(sc.objects, sc.cron), Reports: []task.Report{sc.report}}
			calm := filltest.Harm(t, scene, name, build(sc.phase), outcome)
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
