package cron

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestNoSchedule: a cron without a schedule does not poll its source, and imports the version that a user wrote into its
// annotation, whatever its format.
func TestNoSchedule(t *testing.T) {
	const odd = "sha256:../../../../etc"
	if is := importName(daily(nil), odd); strings.Contains(is, ".") {
		t.Errorf("the import of %s is called %s", odd, is)
	}
	golden := filltest.Bound(filltest.Team, "golden")
	for name, row := range map[string]struct {
		digest string
		source *cdiv1.DataVolumeSource
		want   []string
	}{
		"nothing said":     {"", nil, nil},
		"a digest":         {digest1, nil, []string{"os-111111111111"}},
		"an odd digest":    {odd, nil, []string{importName(daily(nil), odd)}},
		"a claim, unsaid":  {"", &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: filltest.Team, Name: "golden"}}, nil},
		"a claim's digest": {digest2, &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: filltest.Team, Name: "golden"}}, []string{"os-222222222222"}},
	} {
		w := filltest.New(t, filltest.Scene{Objects: []client.Object{golden, daily(func(c *cdiv1.DataImportCron) {
			c.Spec.Schedule = ""
			if row.source != nil {
				c.Spec.Template.Spec.Source = row.source
			}
			if row.digest != "" {
				c.Annotations = map[string]string{annDigest: row.digest}
			}
		})}})
		w.Run("fedora", build(cdiv1.Succeeded)(w))
		volumes, _ := kept(w)
		if !slices.Equal(volumes, row.want) || w.Tries > 0 {
			t.Errorf("%s: imports %v after %d polls, want %v", name, volumes, w.Tries, row.want)
		}
	}
}

// TestAsksAtOnce: a next time in the past that a user set makes the cron poll its source, once; one in the future changes nothing.
func TestAsksAtOnce(t *testing.T) {
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{daily(nil)}, Reports: []task.Report{answer(digest1)}})
	r := build(cdiv1.Succeeded)(w)
	w.Run(name, r)
	c := filltest.Get[cdiv1.DataImportCron](w, filltest.Team, name)
	if next := c.Annotations[annNext]; w.Tries != 1 || next != "2026-01-02T00:00:00Z" {
		t.Fatalf("%d polls, and the next at %s", w.Tries, next)
	}
	w.Clock.SetTime(w.Clock.Now().Add(time.Hour))
	for _, row := range []struct {
		next  string
		polls int
	}{{"2025-01-01T00:00:00Z", 2}, {"2027-01-01T00:00:00Z", 2}, {"soon", 2}, {w.Clock.Now().Format(time.RFC3339), 3}} {
		c = filltest.Get[cdiv1.DataImportCron](w, filltest.Team, name)
		c.Annotations[annNext] = row.next
		w.Must(w.API.Update(t.Context(), c))
		w.Run(name, r)
		if w.Tries != row.polls {
			t.Errorf("next time %s: %d polls, want %d", row.next, w.Tries, row.polls)
		}
	}
}

// TestClaimsThatAreLeft: claims of imports whose DataVolumes are gone are removed as imports are, those first that were used longest ago. One that
// only has the label stays.
func TestClaimsThatAreLeft(t *testing.T) {
	claim := func(name, digest, used string) *corev1.PersistentVolumeClaim {
		c := filltest.Bound(filltest.Team, name)
		c.Labels, c.Annotations = map[string]string{Label: "fedora"}, map[string]string{annDigest: digest, annUsed: used}
		return c
	}
	w := filltest.New(t, filltest.Scene{Reports: []task.Report{answer(digest1)}, Objects: []client.Object{
		daily(nil), claim("os-333333333333", "sha256:3333333333333333", "2025-03-01T00:00:00Z"),
		claim("os-444444444444", "sha256:4444444444444444", "2025-02-01T00:00:00Z"),
		claim("mine", "sha256:4444444444444444", "2025-01-01T00:00:00Z"), claim("clone", "", ""),
	}})
	r := build(cdiv1.Succeeded)(w).(importer).Reconciler // the claims are not the importer's to make
	steps := func() {
		for range 8 {
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: filltest.Team, Name: name}})
			w.Must(err)
			w.Turn()
		}
	}
	steps()
	v := filltest.Get[cdiv1.DataVolume](w, filltest.Team, "os-111111111111")
	w.Must(w.API.Create(t.Context(), filltest.Bound(filltest.Team, v.Name)))
	v.Status.Phase = cdiv1.Succeeded
	w.Must(w.API.Status().Update(t.Context(), v))
	steps()
	var all corev1.PersistentVolumeClaimList
	w.Must(w.API.List(t.Context(), &all))
	var names []string
	for _, c := range all.Items {
		names = append(names, c.Name)
		if c.Name == v.Name && c.Annotations[annUsed] != w.Clock.Now().UTC().Format(time.RFC3339Nano) {
			t.Errorf("the import was last used %q", c.Annotations[annUsed])
		}
	}
	if want := []string{"clone", "mine", "os-111111111111", "os-333333333333"}; !slices.Equal(names, want) {
		t.Errorf("claims %v are left, want %v", names, want)
	}
}
