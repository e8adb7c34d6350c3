package proxy

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/token"
)

// Annotations of a claim that say where its data goes.
const (
	annPodPhase = names.PodPhase
	annPrime    = names.Prime
)

// Finder asks the API server where a claim's worker is. It asks every time: a proxy that remembered could be wrong.
func Finder(c kubernetes.Interface) func(context.Context, token.Claim) (Worker, error) {
	return func(ctx context.Context, want token.Claim) (Worker, error) {
		claim, err := c.CoreV1().PersistentVolumeClaims(want.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return Worker{}, ErrMissing
		case err != nil:
			return Worker{}, fmt.Errorf("read PVC %s/%s: %w", want.Namespace, want.Name, err)
		case string(claim.UID) != want.UID:
			return Worker{}, ErrOther
		case claim.Annotations[annPodPhase] == string(corev1.PodSucceeded):
			return Worker{}, &Finished{Upload: claim.Annotations[names.Uploaded]}
		}
		filled := claim.Name
		if prime := claim.Annotations[annPrime]; prime != "" {
			filled = prime // a populator fills another claim, whose volume this one gets
		}
		name := render.WorkerName(render.RoleUpload, filled)
		pod, err := c.CoreV1().Pods(want.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return Worker{}, fmt.Errorf("%w: pod %s does not exist", ErrNotReady, name)
		case err != nil:
			return Worker{}, fmt.Errorf("read pod %s/%s: %w", want.Namespace, name, err)
		case !madeFor(pod, claim):
			return Worker{}, fmt.Errorf("%w: pod %s is not its worker; delete it", ErrNotReady, name)
		case pod.DeletionTimestamp != nil || pod.Status.PodIP == "" || !pods.Ready(pod):
			return Worker{}, fmt.Errorf("%w: pod %s is %s", ErrNotReady, name, pod.Status.Phase)
		}
		return Worker{
			Claim: want, Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(render.UploadPort)),
			Name: render.UploadServer(pod.Namespace, pod.Name), Owner: ownerOf(claim),
		}, nil
	}
}

// madeFor reports whether the pod is the claim's worker, which belongs to the claim or to the volume that the claim belongs to.
// Any user can give a pod this name.
func madeFor(pod *corev1.Pod, c *corev1.PersistentVolumeClaim) bool {
	owner, of := metav1.GetControllerOf(pod), metav1.GetControllerOf(c)
	return owner != nil && (owner.UID == c.UID || of != nil && owner.UID == of.UID)
}

// ownerOf returns the object that gets events about the claim: the volume it belongs to, or itself.
func ownerOf(c *corev1.PersistentVolumeClaim) Owner {
	if o := metav1.GetControllerOf(c); o != nil {
		return Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: string(o.UID)}
	}
	return Owner{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: c.Name, UID: string(c.UID)}
}
