package restore

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// importer plays what keeps DataVolumes: one without a claim fills a new one, unless it is told to wait; a claim that is
// said to be for it becomes its own.
func (w *world) importer() {
	ctx := context.Background()
	var all cdiv1.DataVolumeList
	w.must(w.api.List(ctx, &all))
	for i := range all.Items {
		v := &all.Items[i]
		c := read[corev1.PersistentVolumeClaim](w, v.Name)
		_, waits := v.Annotations[snapshotcontent.AnnPrePopulated]
		switch {
		case c == nil && !waits:
			w.story = append(w.story, "imported "+v.Name+" again")
			c = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name, OwnerReferences: ownedBy(v)}}
			w.must(w.api.Create(ctx, c))
		case c != nil && len(c.OwnerReferences) == 0 && c.Annotations[snapshotcontent.AnnPopulatedFor] == v.Name:
			c.OwnerReferences = ownedBy(v)
			w.must(w.api.Update(ctx, c))
		}
	}
}

func ownedBy(v *cdiv1.DataVolume) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(v, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
}

// disks gives the machine, besides its claim, a disk in a DataVolume of its own, one in a user's DataVolume, and a user's claim.
func (w *world) disks(phase cdiv1.DataVolumePhase) {
	ctx := context.Background()
	vm := read[kubevirt.VirtualMachine](w, "vm")
	vm.Annotations = map[string]string{"note": "x", corev1.LastAppliedConfigAnnotation: "{}"}
	vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "os"}, Spec: cdiv1.DataVolumeSpec{
		SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: ptr.To("golden"), Name: "debian"}}}}
	add := func(name string, s kubevirt.VolumeSource) {
		vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, kubevirt.Volume{Name: name, VolumeSource: s})
	}
	add("system", kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "os"}})
	add("shared", kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "lent"}})
	add("free", kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "mine"}})
	w.must(w.api.Update(ctx, vm))
	w.more = []string{"os", "lent", "mine"}
	for _, name := range w.more {
		c := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("old-" + name)},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("local"), Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
		c.Spec.VolumeName = "pv-" + name
		if name != "mine" {
			v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("dv-" + name)}}
			v.Status.Phase = phase
			w.must(w.api.Create(ctx, v))
			c.OwnerReferences = ownedBy(v)
		}
		w.must(w.api.Create(ctx, c))
		w.must(w.api.Create(ctx, volumeOf(c.Spec.VolumeName, c)))
	}
}

// kept returns what became of every claim and machine, for comparison.
func (w *world) kept() string {
	ctx := context.Background()
	out := map[string]any{"story": w.story}
	var claims corev1.PersistentVolumeClaimList
	w.must(w.api.List(ctx, &claims))
	for _, c := range claims.Items {
		out["claim "+c.Name] = []any{c.UID, c.Annotations, c.Labels, c.OwnerReferences, c.Spec.DataSourceRef, c.Spec.VolumeName, c.Status.Phase}
	}
	out["volumes"] = w.volumes()
	var machines kubevirt.VirtualMachineList
	w.must(w.api.List(ctx, &machines))
	for _, m := range machines.Items {
		out["machine "+m.Name] = []any{m.Annotations, m.Spec}
	}
	if r := read[snapshotv1.VirtualMachineRestore](w, "back"); r != nil {
		out["complete"], out["restores"] = r.Status.Complete, r.Status.Restores
	}
	text, err := json.MarshalIndent(out, "", " ")
	w.must(err)
	return string(text)
}

// everywhere does the same undisturbed, and with every write refused or the last: it must end in the same place.
func everywhere(t *testing.T, do func(w *world)) *world {
	t.Helper()
	calm := newWorld(t, false, false)
	calm.each = calm.neverLost
	do(calm)
	want := calm.kept()
	for at := 1; at <= calm.faults.Writes; at++ {
		for _, kind := range faults.Kinds {
			w := newWorld(t, false, false)
			w.faults.At, w.faults.Kind = at, kind
			w.each = w.neverLost
			do(w)
			if diff := cmp.Diff(want, w.kept()); diff != "" {
				t.Errorf("write %d of %d, %s: another end (-undisturbed +disturbed):\n%s", at, calm.faults.Writes, kind, diff)
			}
		}
	}
	return calm
}

func (w *world) claimIs(name, controller, volume string) {
	w.t.Helper()
	c := read[corev1.PersistentVolumeClaim](w, name)
	if c == nil {
		w.t.Errorf("there is no claim %s", name)
		return
	}
	got := ""
	if o := metav1.GetControllerOf(c); o != nil {
		got = o.Kind + "/" + o.Name
	}
	if got != controller || c.Annotations[snapshotcontent.AnnPopulatedFor] != volume || c.Annotations[snapshotcontent.AnnRestore] != "back-uid" ||
		c.Spec.DataSourceRef == nil || c.Spec.DataSourceRef.Kind != "VolumeSnapshot" {
		w.t.Errorf("claim %s is controlled by %q and for %q: %+v", name, got, c.Annotations[snapshotcontent.AnnPopulatedFor], c)
	}
}

// TestInPlace: every kind of disk comes back under its name and is whose it was; nothing is imported again.
func TestInPlace(t *testing.T) {
	t.Parallel()
	w := everywhere(t, func(w *world) {
		w.disks(cdiv1.Succeeded)
		w.snapshot()
		w.restore(snapshotv1.StopTarget)
		w.storage()
	})
	w.claimIs("vm-disk", "VirtualMachine/vm", "")
	w.claimIs("os", "DataVolume/os", "os")
	w.claimIs("lent", "DataVolume/lent", "lent")
	w.claimIs("mine", "", "")
	for _, line := range w.story {
		if strings.HasPrefix(line, "imported") {
			t.Errorf("the story is %q", w.story)
		}
	}
	if s := read[snapshotv1.VirtualMachineSnapshot](w, "snap"); len(s.Status.Indications) != 0 {
		t.Errorf("indications are %v", s.Status.SourceIndications)
	}
}

// TestElsewhere: a machine that does not exist is made from the snapshot, stopped, with claims named after it, and the
// machine that the snapshot is of stays as it is.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	w := everywhere(t, func(w *world) {
		w.disks(cdiv1.Succeeded)
		w.snapshot()
		w.patches = []string{`{"op": "add", "path": "/metadata/annotations/patched", "value": "yes"}`,
			`{"op": "add", "path": "/spec/template/spec/hostname", "value": "other"}`}
		w.restoreTo("copy", snapshotv1.FailImmediate)
	})
	w.claimIs("copy-disk", "VirtualMachine/copy", "")
	w.claimIs("copy-system", "", "copy-system") // until the machine has its DataVolume, which adopts it
	w.claimIs("copy-shared", "VirtualMachine/copy", "copy-shared")
	w.claimIs("copy-free", "VirtualMachine/copy", "")
	for _, name := range []string{"vm-disk", "os", "lent", "mine"} {
		if c := read[corev1.PersistentVolumeClaim](w, name); c == nil || !strings.HasPrefix(string(c.UID), "old") {
			t.Errorf("claim %s was touched", name)
		}
	}
	vm := read[kubevirt.VirtualMachine](w, "copy")
	if got := vm.Annotations[corev1.LastAppliedConfigAnnotation]; got != "" || vm.Annotations["note"] != "x" {
		t.Errorf("annotations are %v", vm.Annotations)
	}
	if vm.Annotations["patched"] != "yes" || vm.Spec.Template.Spec.Hostname != "other" {
		t.Errorf("it is not patched: %v, hostname %q", vm.Annotations, vm.Spec.Template.Spec.Hostname)
	}
	if vm.Spec.RunStrategy == nil || *vm.Spec.RunStrategy != kubevirt.RunHalted {
		t.Errorf("it runs: %v", vm.Spec.RunStrategy)
	}
	template := vm.Spec.DataVolumeTemplates[0]
	if s := template.Spec.Source; template.ObjectMeta.Name != "copy-system" || template.Spec.SourceRef != nil || s == nil || s.Snapshot == nil ||
		s.Snapshot.Name != "vmsnapshot-snap-uid-volume-system" || s.Snapshot.Namespace != "team" {
		t.Errorf("the template is %+v", template)
	}
	names := map[string]string{}
	for _, v := range vm.Spec.Template.Spec.Volumes {
		names[v.Name] = snapshotcontent.ClaimFor("copy", &vm.Spec, v).Claim
	}
	want := map[string]string{"root": "copy-disk", "seed": "", "system": "copy-system", "shared": "copy-shared", "free": "copy-free"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("its disks (-want +got):\n%s", diff)
	}
}

// TestMachineMadeAgain: the machine was deleted since, and comes back with its claims under their names.
func TestMachineMadeAgain(t *testing.T) {
	t.Parallel()
	w := everywhere(t, func(w *world) {
		w.snapshot()
		w.must(w.api.Delete(context.Background(), read[kubevirt.VirtualMachine](w, "vm")))
		w.restore(snapshotv1.FailImmediate)
	})
	w.claimIs("vm-disk", "VirtualMachine/vm", "")
	c := read[corev1.PersistentVolumeClaim](w, "vm-disk")
	if vm := read[kubevirt.VirtualMachine](w, "vm"); !metav1.IsControlledBy(c, vm) {
		t.Errorf("the claim is %v, the machine %s", c.OwnerReferences, vm.UID)
	}
}

// TestElsewhereRefuses: what is there already under the names that are wanted is left alone, what makes no machine is not made,
// and it is said what to do.
func TestElsewhereRefuses(t *testing.T) {
	for _, c := range []struct {
		name, says string
		prepare    func(w *world)
	}{
		{"a machine", "the snapshot is of another; name one that does not exist", func(w *world) {
			w.must(w.api.Create(context.Background(), &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "copy", UID: "other"}}))
		}},
		{"what the API server refuses", "the name is too long", func(w *world) { w.refuse = "the name is too long" }},
		{"a machine's name", `"/metadata/name", "value": "x"} is not on anything under /spec/`, func(w *world) {
			w.patches = []string{`{"op": "replace", "path": "/metadata/name", "value": "x"}`}
		}},
		{"what is no patch", "patch runStrategy: Always is not one operation like", func(w *world) { w.patches = []string{"runStrategy: Always"} }},
		{"copies of copies", "makes the machine larger than 1048576 bytes", func(w *world) {
			w.patches = []string{`{"op": "add", "path": "/spec/a", "value": {"x": 1}}`}
			for range 15 {
				w.patches = append(w.patches, `{"op": "copy", "from": "/spec/a", "path": "/spec/b"}`, `{"op": "move", "from": "/spec/b", "path": "/spec/a/b"}`,
					`{"op": "copy", "from": "/spec/a", "path": "/spec/c"}`, `{"op": "move", "from": "/spec/c", "path": "/spec/a/c"}`)
			}
		}},
		{"a field there is none of", `the patches leave no VirtualMachine: json: unknown field "speed"`, func(w *world) {
			w.patches = []string{`{"op": "add", "path": "/spec/speed", "value": 9}`}
		}},
		{"a claim of nobody", "copy-disk exists already; delete it", func(w *world) {
			w.must(w.api.Create(context.Background(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "copy-disk", UID: "other"}}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, false, false)
			w.snapshot()
			c.prepare(w)
			before := w.kept()
			w.restoreTo("copy", snapshotv1.StopTarget)
			r := read[snapshotv1.VirtualMachineRestore](w, "back")
			failed := slices.IndexFunc(r.Status.Conditions, func(c snapshotv1.Condition) bool { return c.Type == snapshotv1.ConditionFailure })
			if failed < 0 || !strings.Contains(r.Status.Conditions[failed].Message, c.says) {
				t.Fatalf("it says %+v", r.Status.Conditions)
			}
			w.must(w.api.Delete(context.Background(), r))
			if diff := cmp.Diff(before, w.kept()); diff != "" {
				t.Errorf("something was touched (-before +after):\n%s", diff)
			}
		})
	}
}

// TestCopiedIsNotKept: a disk that is a copy goes with the instance, and its master is not the machine's.
func TestCopiedIsNotKept(t *testing.T) {
	w := newWorld(t, false, false)
	w.disks(cdiv1.Succeeded)
	vm := read[kubevirt.VirtualMachine](w, "vm")
	for i := range vm.Spec.Template.Spec.Volumes {
		if v := &vm.Spec.Template.Spec.Volumes[i]; v.Name == "free" {
			v.Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite}
		}
	}
	w.must(w.api.Update(context.Background(), vm))
	w.snapshot()
	s := read[snapshotv1.VirtualMachineSnapshot](w, "snap")
	if l := s.Status.SnapshotVolumes; slices.Contains(l.IncludedVolumes, "free") || !slices.Contains(l.ExcludedVolumes, "free") || len(l.IncludedVolumes) == 0 {
		t.Errorf("volumes are %+v", l)
	}
}

// TestNotYetFilled: a disk whose DataVolume is still importing is not in the snapshot, which says so.
func TestNotYetFilled(t *testing.T) {
	w := newWorld(t, false, false)
	w.disks(cdiv1.ImportInProgress)
	w.snapshot()
	s := read[snapshotv1.VirtualMachineSnapshot](w, "snap")
	if want := []string{"root", "free"}; !slices.Equal(s.Status.SnapshotVolumes.IncludedVolumes, want) {
		t.Errorf("volumes are %v", s.Status.SnapshotVolumes)
	}
	if !slices.Contains(s.Status.Indications, snapshotv1.PartialSnapshot) ||
		!strings.Contains(s.Status.SourceIndications[0].Message, "DataVolume os is ImportInProgress: take the snapshot when it is Succeeded") {
		t.Errorf("indications are %v", s.Status.SourceIndications)
	}
}
