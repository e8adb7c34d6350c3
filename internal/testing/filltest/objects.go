package filltest

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// Done returns the report of a worker that is done.
func Done() task.Report {
	return task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed}
}

// Retry returns the report of a worker that may be lucky next time.
func Retry() task.Report {
	return task.Report{Version: task.Version, Outcome: task.Retry, Reason: task.SourceNotFound, Detail: "http://images/disk.qcow2: 404"}
}

// Fatal returns the report of a worker that is certain to fail again.
func Fatal() task.Report {
	return task.Report{Version: task.Version, Outcome: task.Fatal, Reason: task.ChecksumMismatch, Detail: "checksum differs"}
}

// Class returns the storage class of every claim.
func Class(mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "test", VolumeBindingMode: &mode}
}

// Waits and AtOnce are the two ways to bind.
const (
	Waits  = storagev1.VolumeBindingWaitForFirstConsumer
	AtOnce = storagev1.VolumeBindingImmediate
)

// Spec returns what claims ask for.
func Spec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("local"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// Bound returns a claim that is bound, without a volume to look at.
func Bound(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "bound-uid"}, Spec: Spec(),
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}
}

// Driver makes the class's provisioner a driver that takes snapshots.
func Driver() []client.Object {
	snap := &volumesnapshot.Class{ObjectMeta: metav1.ObjectMeta{Name: "snap"}, Driver: "test", DeletionPolicy: "Delete"}
	return []client.Object{&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "test"}}, snap}
}

// On returns how a volume says that it is on a node.
func On(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
}

// BoundOn returns a claim of Team that is bound to a volume on a node.
func BoundOn(name, node string) []client.Object {
	c := Bound(Team, name)
	c.Spec.VolumeName = "pv-of-" + name
	return []client.Object{c, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: c.Spec.VolumeName, UID: types.UID(c.Spec.VolumeName)},
		Spec:       corev1.PersistentVolumeSpec{NodeAffinity: On(node), ClaimRef: &corev1.ObjectReference{UID: c.UID}},
	}}
}

// Reserved returns a volume that is reserved for a claim of Team that does not exist yet.
func Reserved(claim string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: Team, Name: claim},
	}}
}

// Nodes are nodes with nothing on them.
func Nodes(names ...string) []client.Object {
	var nodes []client.Object
	for _, name := range names {
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	return nodes
}

// Snapshot returns a snapshot that is ready, of a claim of that volume mode, with its data on a node; an empty node is
// everywhere.
func Snapshot(namespace, name, node string, mode corev1.PersistentVolumeMode) []client.Object {
	content := &volumesnapshot.Content{
		ObjectMeta: metav1.ObjectMeta{Name: "content-of-" + name},
		Spec:       snapshotv1.VolumeSnapshotContentSpec{Driver: "test", SourceVolumeMode: &mode},
	}
	if node != "" {
		content.Labels = map[string]string{"snapshot.storage.kubernetes.io/managed-by": node}
	}
	snap := &volumesnapshot.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Status: &snapshotv1.VolumeSnapshotStatus{
			ReadyToUse: ptr.To(true), RestoreSize: ptr.To(resource.MustParse("1Gi")), BoundVolumeSnapshotContentName: &content.Name,
		},
	}
	return []client.Object{snap, content}
}

// Consumer returns a pod that wants a claim of Team and can only run on one node.
func Consumer(claim, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Team, Name: "vm"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, Containers: []corev1.Container{{Name: "vm"}},
			Volumes: []corev1.Volume{{Name: claim, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}
