//go:build e2e

package framework

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Claim is a PersistentVolumeClaim as tests need one.
type Claim struct {
	Name  string
	Class string
	Size  string // 1Gi if empty
	Block bool
}

// Create creates the claim.
func (e *Env) Create(c Claim) *corev1.PersistentVolumeClaim {
	e.T.Helper()
	size, mode := c.Size, corev1.PersistentVolumeFilesystem
	if size == "" {
		size = "1Gi"
	}
	if c.Block {
		mode = corev1.PersistentVolumeBlock
	}
	pvc, err := e.Client.CoreV1().PersistentVolumeClaims(e.Namespace).Create(e.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &c.Class, VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.T.Fatalf("create claim %s: %v", c.Name, err)
	}
	return pvc
}

// WaitBound waits until the claim is bound, and returns its volume.
func (e *Env) WaitBound(name string) *corev1.PersistentVolume {
	e.T.Helper()
	var pvc *corev1.PersistentVolumeClaim
	e.Wait("claim "+name+" to be bound", time.Minute, func(ctx context.Context) (bool, string) {
		var err error
		if pvc, err = e.Client.CoreV1().PersistentVolumeClaims(e.Namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return pvc.Status.Phase == corev1.ClaimBound, string(pvc.Status.Phase)
	})
	pv, err := e.Client.CoreV1().PersistentVolumes().Get(e.Context(), pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		e.T.Fatalf("read volume of claim %s: %v", name, err)
	}
	return pv
}

// StaysPending fails the test if the claim is bound within that time.
func (e *Env) StaysPending(name string, limit time.Duration) {
	e.T.Helper()
	e.Stays(fmt.Sprintf("claim %s is Pending", name), limit, func(ctx context.Context) (bool, string) {
		pvc, err := e.Client.CoreV1().PersistentVolumeClaims(e.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return pvc.Status.Phase == corev1.ClaimPending, string(pvc.Status.Phase)
	})
}

// nodeKeys are the labels by which storage says which node a volume is on: Kubernetes' own, and that of the CSI driver localdisk.
var nodeKeys = []string{corev1.LabelHostname, "localdisk.berth.dev/node"}

// VolumeNode is the node a local volume is on; "" if it is on none in particular.
func VolumeNode(pv *corev1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, r := range term.MatchExpressions {
			if slices.Contains(nodeKeys, r.Key) && len(r.Values) == 1 {
				return r.Values[0]
			}
		}
	}
	return ""
}
