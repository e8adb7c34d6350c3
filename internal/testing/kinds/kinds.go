// Package kinds has the kinds of Kubernetes that tests of controllers use. A fake API server goes through its whole scheme for each request, so one
// with every kind there is takes most of the time of a test. The package does not know Berth's kinds.
package kinds

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddToScheme adds the kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Secret{}, &corev1.SecretList{}, &corev1.Service{}, &corev1.ServiceList{},
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeList{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{},
		&corev1.Node{}, &corev1.NodeList{}, &corev1.Event{}, &corev1.EventList{}, &corev1.Namespace{}, &corev1.NamespaceList{})
	s.AddKnownTypes(storagev1.SchemeGroupVersion, &storagev1.StorageClass{}, &storagev1.StorageClassList{})
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion} {
		metav1.AddToGroupVersion(s, gv)
	}
	return nil
}
