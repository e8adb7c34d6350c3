package filltest

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/task"
)

// Done is the report of a worker that is done.
func Done() task.Report {
	return task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed}
}

// Retry is the report of a worker that may be lucky next time.
func Retry() task.Report {
	return task.Report{Version: task.Version, Outcome: task.Retry, Reason: task.SourceNotFound, Detail: "http://images/disk.qcow2: 404"}
}

// Fatal is the report of a worker that is certain to fail again.
func Fatal() task.Report {
	return task.Report{Version: task.Version, Outcome: task.Fatal, Reason: task.ChecksumMismatch, Detail: "checksum differs"}
}

// Class is the storage class of every claim.
func Class(mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "test", VolumeBindingMode: &mode}
}

// Waits and AtOnce are the two ways to bind.
const (
	Waits  = storagev1.VolumeBindingWaitForFirstConsumer
	AtOnce = storagev1.VolumeBindingImmediate
)

// Spec is what claims ask for.
func Spec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("local"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// Bound is a claim that is bound, without a volume to look at.
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
	u := &unstructured.Unstructured{Object: map[string]any{"driver": "test", "deletionPolicy": "Delete"}}
	u.SetGroupVersionKind(SnapshotGroup.WithKind("VolumeSnapshotClass"))
	u.SetName("snap")
	return []client.Object{&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "test"}}, u}
}
