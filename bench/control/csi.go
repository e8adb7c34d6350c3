package main

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/test/simulated"
)

// simulatedDriver is a CSI driver of which there is only the provisioner below.
const simulatedDriver = "simulated.bench"

// csiObjects returns what a CSI driver's own installation makes, and its class.
func csiObjects() []client.Object {
	return []client.Object{
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: simulatedDriver}, Spec: storagev1.CSIDriverSpec{AttachRequired: new(false)}},
		class(simulatedDriver),
	}
}

// provision does what the provisioner of a CSI driver does, without a disk: a claim that the scheduler has chosen a node for gets a volume
// there. Like a real driver it leaves claims alone that a populator fills.
func provision(ctx context.Context, c *simulated.Cluster) error {
	kube, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	serve := func(obj any) {
		claim := obj.(*corev1.PersistentVolumeClaim)
		node := claim.Annotations[names.SelectedNode]
		if node == "" || claim.Spec.VolumeName != "" || claim.Spec.DataSourceRef != nil {
			return
		}
		_, err := kube.CoreV1().PersistentVolumes().Create(ctx, provisioned(claim, node), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
			log.Printf("provision %s: %v", claim.Name, err)
		}
	}
	all := informers.NewSharedInformerFactory(kube, 0)
	_, err = all.Core().V1().PersistentVolumeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: serve, UpdateFunc: func(_, obj any) { serve(obj) },
	})
	if err != nil {
		return fmt.Errorf("watch claims: %w", err)
	}
	all.Start(ctx.Done())
	return nil
}

// provisioned returns the claim's own volume on a node.
func provisioned(claim *corev1.PersistentVolumeClaim, node string) *corev1.PersistentVolume {
	v := local("pvc-"+string(claim.UID), node)
	v.Annotations = map[string]string{names.ProvisionedBy: simulatedDriver}
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: simulatedDriver, VolumeHandle: v.Name}}
	v.Spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}
	return v
}
