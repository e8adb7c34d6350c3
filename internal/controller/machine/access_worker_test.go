package machine

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/state"
)

// TestAWorkerHasTheDisk: a machine waits for a disk that a worker reads or fills, and says what for; it starts when the worker has ended.
func TestAWorkerHasTheDisk(t *testing.T) {
	ctx := context.Background()
	for use, row := range map[accessv1.Use]struct {
		mode accessv1.Mode
		says string
	}{
		accessv1.UseClone:  {accessv1.ReadShared, "pod worker reads it to make a clone"},
		accessv1.UseExport: {accessv1.ReadShared, "pod worker reads it for an export"},
		accessv1.UseFill:   {accessv1.WriteExclusive, "pod worker fills it"},
	} {
		t.Run(string(use), func(t *testing.T) {
			w := sharers(t, nil)
			pv, err := cluster.Get[corev1.PersistentVolume](ctx, w.api, "", "pv-one")
			w.must(err)
			id := identity.Volume(pv)
			has := &accessv1.DiskAccess{ObjectMeta: metav1.ObjectMeta{Name: id.Name()}, Spec: accessv1.DiskAccessSpec{Disk: id.String(), Holders: []accessv1.Holder{
				{Namespace: ns, UID: "order", Use: use, Pod: "worker", PodUID: "worker", Node: "node1", Mode: row.mode}}}}
			w.must(w.api.Create(ctx, has))
			w.both([]string{"a"}, false)
			if i := w.named("a"); len(w.going()) != 0 || i.Status.Reason != string(state.DiskInUse) || !strings.Contains(i.Status.Conditions[0].Message, row.says) {
				t.Fatalf("%v run; it says %s: %s", w.going(), i.Status.Reason, i.Status.Conditions[0].Message)
			}
			w.must(w.api.Delete(ctx, has))
			w.both([]string{"a"}, false)
			if got := w.going(); len(got) != 1 {
				t.Errorf("%v run", got)
			}
		})
	}
}

// TestRecordsOfAnEarlierVersion: a record of a machine that runs since an earlier version has the name of its PersistentVolume. It counts
// for the same disk through another PersistentVolume, and the machine gets a record of the new name.
func TestRecordsOfAnEarlierVersion(t *testing.T) {
	ctx := context.Background()
	w := sharers(t, nil)
	for _, name := range []string{"pv-one", "pv-two"} { // two volumes of one directory; "two" is taken out of the first machine
		pv, err := cluster.Get[corev1.PersistentVolume](ctx, w.api, "", name)
		w.must(err)
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/disk"}}
		w.must(w.api.Update(ctx, pv))
	}
	for name, volume := range map[string]int{"a": 0, "b": 0} { // a has claim one, b has claim two
		i := w.named(name)
		i.Spec.Volumes, i.Spec.Domain.Devices.Disks = i.Spec.Volumes[volume:volume+1], i.Spec.Domain.Devices.Disks[volume:volume+1]
		w.must(w.api.Update(ctx, i))
	}
	w.both([]string{"a"}, false)
	if got := w.going(); len(got) != 1 || got[0] != "a" {
		t.Fatalf("%v run", got)
	}
	pv, err := cluster.Get[corev1.PersistentVolume](ctx, w.api, "", "pv-one")
	w.must(err)
	now, err := cluster.Get[accessv1.DiskAccess](ctx, w.api, "", identity.Volume(pv).Name())
	w.must(err)
	was, renamed := identity.Former(pv)
	if now == nil || !renamed {
		t.Fatalf("the record is %v, and was called otherwise: %v", now, renamed)
	}
	old := &accessv1.DiskAccess{ObjectMeta: metav1.ObjectMeta{Name: was.Name(), Labels: now.Labels}, Spec: *now.Spec.DeepCopy()}
	w.must(w.api.Create(ctx, old))
	w.must(w.api.Delete(ctx, now))

	w.both([]string{"b"}, false) // the new version, before it has looked at the first machine
	if got := w.going(); len(got) != 1 || got[0] != "a" || w.named("b").Status.Reason != string(state.DiskInUse) {
		t.Fatalf("%v run", got)
	}
	w.both([]string{"b", "a"}, false)
	holder := types.UID("")
	if now, err = cluster.Get[accessv1.DiskAccess](ctx, w.api, "", identity.Volume(pv).Name()); now != nil && len(now.Spec.Holders) == 1 {
		holder = now.Spec.Holders[0].UID
	}
	w.must(err)
	if holder != "run-a" {
		t.Errorf("the record of the new name is %v", now)
	}
	w.must(w.api.Delete(ctx, w.named("a")))
	w.both([]string{"a", "b"}, false)
	if got := w.going(); len(got) != 1 || got[0] != "b" {
		t.Errorf("after the first has ended %v run", got)
	}
	left, err := cluster.Get[accessv1.DiskAccess](ctx, w.api, "", was.Name())
	w.must(err)
	if left != nil {
		t.Errorf("the old record is left: %v", left.Spec)
	}
}
