package bind

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

const (
	interval = 250 * time.Millisecond
	// farewell is how long the removal of the pod may take after an interrupt.
	farewell = 30 * time.Second
)

// Bind starts a consumer of the claim, waits until the claim is bound (or, if a populator will bind it, until a node is
// chosen) and removes the consumer. It tells out what happens. The consumer is removed whatever the outcome; that this
// could not be done is an error that names the pod.
func Bind(ctx context.Context, c *kube.Client, name string, at Place, out io.Writer) (err error) {
	claim, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read PVC %s: %w", name, err)
	}
	if bound(claim) {
		return nil
	}
	pod, err := Pod(claim, at)
	if err != nil {
		return err
	}
	pods := c.Core.CoreV1().Pods(c.Namespace)
	if pod, err = pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a consumer pod for PVC %s: %w", name, err)
	}
	defer func() {
		if gone := remove(ctx, c, pod); err == nil {
			err = gone
		}
	}()
	_, _ = fmt.Fprintf(out, "Binding PVC %s with consumer pod %s...\n", name, pod.Name)
	node, err := follow(ctx, c, pod, name, out)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "PVC %s bound on node %s\n", name, node)
	return nil
}

// bound reports whether the claim needs no consumer any more. A claim with a source of its own is bound by its populator, long
// after the scheduler has chosen the node.
func bound(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Status.Phase == corev1.ClaimBound || claim.Spec.DataSourceRef != nil && claim.Annotations[names.SelectedNode] != ""
}

// follow waits until the claim is bound, and prints the scheduler's messages meanwhile.
func follow(ctx context.Context, c *kube.Client, pod *corev1.Pod, name string, out io.Writer) (node string, err error) {
	said := ""
	err = wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		claim, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("read PVC %s: %w", name, err)
		}
		now, err := c.Core.CoreV1().Pods(c.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("read consumer pod %s: %w", pod.Name, err)
		}
		if node = now.Spec.NodeName; node == "" {
			node = claim.Annotations[names.SelectedNode]
		}
		if words := unschedulable(now); words != "" && words != said {
			said = words
			_, _ = fmt.Fprintf(out, "No node for it yet: %s\n", words)
		}
		return bound(claim) && node != "", nil
	})
	if err != nil && said != "" {
		return "", fmt.Errorf("bind PVC %s: %w; no node could take consumer pod %s: %s", name, err, pod.Name, said)
	}
	if err != nil {
		return "", fmt.Errorf("bind PVC %s: %w", name, err)
	}
	return node, nil
}

// unschedulable returns the scheduler's own sentence about a pod no node will have.
func unschedulable(pod *corev1.Pod) string {
	if no, why := pods.Unplaceable(pod); no {
		return why
	}
	return ""
}

// remove deletes the consumer and waits until it is gone, so that the volume is free for the upload. It continues after an
// interrupt, which is when it matters most.
func remove(ctx context.Context, c *kube.Client, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	pods := c.Core.CoreV1().Pods(c.Namespace)
	err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](1), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err == nil {
		err = wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
			now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return err == nil && now.UID != pod.UID, err
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete consumer pod %s/%s: %w; delete it by hand", pod.Namespace, pod.Name, err)
	}
	return nil
}
