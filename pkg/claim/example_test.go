package claim_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/pkg/claim"
)

// A disk of 10Gi, and nothing else said: the class, the modes and the size of the claim follow from the storage.
func ExampleComplete() {
	block, filesystem := corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	cluster := claim.Cluster{
		Classes: []storagev1.StorageClass{{
			ObjectMeta: metav1.ObjectMeta{
				Name:        "rook-ceph-block",
				Annotations: map[string]string{claim.DefaultVirtClassAnnotation: "true"},
			},
			Provisioner: "rook-ceph.rbd.csi.ceph.com",
		}},
		Profiles: []cdiv1.StorageProfile{{
			ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph-block"},
			Status: cdiv1.StorageProfileStatus{ClaimPropertySets: []cdiv1.ClaimPropertySet{
				{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeMode: &block},
				{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &filesystem},
			}},
		}},
	}
	request := claim.FromStorage(&cdiv1.StorageSpec{
		VolumeMode: &filesystem,
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		},
	})
	result, err := claim.Complete(request, cluster)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, filled := range result.Filled {
		fmt.Println(filled)
	}
	// Output:
	// storageClassName rook-ceph-block: the default class for virtual machines
	// accessModes ReadWriteOnce: choice 2 of 2 of StorageProfile rook-ceph-block, the first with Filesystem
	// resources.requests.storage 10894Mi: a disk of 10Gi and 0.06 of the claim for its filesystem
}

// A clone needs no size: it takes that of its source.
func ExampleComplete_clone() {
	request := claim.Request{
		Source: &claim.Source{
			Name:       "PersistentVolumeClaim golden-images/fedora",
			VolumeMode: corev1.PersistentVolumeBlock,
			Capacity:   resource.MustParse("30Gi"),
		},
	}
	result, err := claim.Complete(request, claim.Cluster{Classes: []storagev1.StorageClass{{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "fast",
			Annotations: map[string]string{claim.DefaultClassAnnotation: "true"},
		},
		Provisioner: "topolvm.io",
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Filled[len(result.Filled)-1])
	// Output:
	// resources.requests.storage 30Gi: the disk in PersistentVolumeClaim golden-images/fedora
}

// A template of a virtual machine says only how large its claim is. The machine's preference has a say about the class
// before any default, and the size is the claim's own.
func ExampleComplete_template() {
	request := claim.Request{
		Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		}},
		PreferredClass: "local",
	}
	class := func(name, provisioner string) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	}
	result, err := claim.Complete(request, claim.Cluster{Classes: []storagev1.StorageClass{
		class("local", "topolvm.io"), class("shared", "rbd.csi.ceph.com"),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Reasons())
	// Output:
	// storageClassName local: the preferred class of the machine's preference; volumeMode Block: choice 1 of 2 of provisioner topolvm.io; accessModes ReadWriteOnce: choice 1 of 2 of provisioner topolvm.io
}
