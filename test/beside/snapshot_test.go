//go:build peers

package beside

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const database = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db, namespace: team}
spec:
  runStrategy: Halted
  dataVolumeTemplates:
  - metadata: {name: db-root}
    spec:
      source: {http: {url: "http://images/disk.qcow2"}}
      storage: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, storageClassName: waits, resources: {requests: {storage: 1Gi}}}
  template:
    spec:
      architecture: amd64
      domain:
        machine: {type: q35}
        memory: {guest: 64Mi}
        devices: {autoattachPodInterface: false, disks: [{name: root, disk: {bus: virtio}}]}
      volumes: [{name: root, dataVolume: {name: db-root}}]
`

// consumer has the claim bound, and ends.
const consumer = `
apiVersion: v1
kind: Pod
metadata: {name: first, namespace: team, labels: {ends: at-once}}
spec: {containers: [{name: a, image: none}], volumes: [{name: disk, persistentVolumeClaim: {claimName: db-root}}]}
`

// TestSnapshot: KubeVirt's controller takes a machine that is off back to a snapshot: it makes a claim out of the snapshot and a DataVolume that
// says that its claim was there before, and waits until the data side agrees.
func TestSnapshot(t *testing.T) {
	ctx := t.Context()
	for _, text := range []string{database, consumer} {
		if err := kube.Create(ctx, object(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	complete(t, "db-root")
	if err := kube.Delete(ctx, object(t, consumer)); err != nil { // who has the claim is in the way of a snapshot, also when it has ended
		t.Fatal(err)
	}
	if err := kube.Create(ctx, object(t, `{apiVersion: snapshot.kubevirt.io/v1beta1, kind: VirtualMachineSnapshot, metadata: {name: before, namespace: team},
		spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: db}}}`)); err != nil {
		t.Fatal(err)
	}
	takeSnapshot(t)
	eventually(t, "the snapshot of the machine is ready", func() (bool, error) {
		s := read(t, "snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot", "before")
		ready, _, _ := unstructured.NestedBool(s.Object, "status", "readyToUse")
		return ready, fmt.Errorf("%v", s.Object["status"])
	})
	if err := kube.Create(ctx, object(t, `{apiVersion: snapshot.kubevirt.io/v1beta1, kind: VirtualMachineRestore, metadata: {name: back, namespace: team},
		spec: {target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: db}, virtualMachineSnapshotName: before}}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine is restored", func() (bool, error) {
		r := read(t, "snapshot.kubevirt.io/v1beta1", "VirtualMachineRestore", "back")
		done, _, _ := unstructured.NestedBool(r.Object, "status", "complete")
		return done, fmt.Errorf("%v", r.Object["status"])
	})
	restored := templateOf(t, "db")
	if restored == "db-root" {
		t.Fatal("the machine has the volume that it had before")
	}
	var v cdiv1.DataVolume
	if err := kube.Get(ctx, client.ObjectKey{Namespace: team, Name: restored}, &v); err != nil {
		t.Fatal(err)
	}
	var c corev1.PersistentVolumeClaim
	if err := kube.Get(ctx, client.ObjectKey{Namespace: team, Name: restored}, &c); err != nil {
		t.Fatal(err)
	}
	if c.Spec.DataSource == nil || c.Spec.DataSource.Kind != "VolumeSnapshot" {
		t.Errorf("the claim does not come from the snapshot: %v", c.Spec.DataSource)
	}
	for _, p := range pods(t, "app", "containerized-data-importer") {
		if uses(&p, restored) {
			t.Errorf("worker %s was made for what came from the snapshot", p.Name)
		}
	}
}

// complete waits until a volume has its data.
func complete(t *testing.T, name string) {
	t.Helper()
	eventually(t, "volume "+name+" is complete", func() (bool, error) {
		var v cdiv1.DataVolume
		err := kube.Get(t.Context(), client.ObjectKey{Namespace: team, Name: name}, &v)
		return err == nil && v.Status.Phase == cdiv1.Succeeded, fmt.Errorf("%s: %w", v.Status.Phase, err)
	})
}

// takeSnapshot is the driver's part.
func takeSnapshot(t *testing.T) {
	t.Helper()
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(schema.GroupVersionKind{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: "VolumeSnapshotList"})
	eventually(t, "KubeVirt asks for a snapshot of the volume", func() (bool, error) {
		err := kube.List(t.Context(), &all, client.InNamespace(team))
		return len(all.Items) == 1, err
	})
	taken := &all.Items[0]
	if claim, _, _ := unstructured.NestedString(taken.Object, "spec", "source", "persistentVolumeClaimName"); claim != "db-root" {
		t.Fatalf("a snapshot of %s", claim)
	}
	taken.Object["status"] = map[string]any{
		"readyToUse": true, "creationTime": "2026-01-02T03:04:05Z", "restoreSize": "1Gi", "boundVolumeSnapshotContentName": "taken",
	}
	if err := kube.Status().Update(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, version, kind, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: team, Name: name}, u); err != nil {
		t.Fatal(err)
	}
	return u
}

// templateOf returns the name of a machine's one volume.
func templateOf(t *testing.T, name string) string {
	t.Helper()
	templates, _, _ := unstructured.NestedSlice(read(t, "kubevirt.io/v1", "VirtualMachine", name).Object, "spec", "dataVolumeTemplates")
	if len(templates) != 1 {
		t.Fatalf("%d templates", len(templates))
	}
	volume, _, _ := unstructured.NestedString(templates[0].(map[string]any), "metadata", "name")
	return volume
}
