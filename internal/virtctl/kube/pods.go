package kube

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// Pods are the pods of a cluster that the user may read. It implements launcherpod.Reader.
type Pods struct{ *Client }

// Read reads a pod, and reports whether it is there.
func (p Pods) Read(ctx context.Context, namespace, name string, into runtime.Object) (bool, error) {
	pod, err := p.Core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	pod.DeepCopyInto(into.(*corev1.Pod))
	return true, nil
}

// ReadAll lists the pods of a namespace that have these labels.
func (p Pods) ReadAll(ctx context.Context, namespace string, with map[string]string, into runtime.Object) error {
	all, err := p.Core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(with).String()})
	if err != nil {
		return fmt.Errorf("list pods of %s: %w", namespace, err)
	}
	all.DeepCopyInto(into.(*corev1.PodList))
	return nil
}

// Log follows what a pod of the client's namespace has written since it started. The caller closes it.
func (c *Client) Log(ctx context.Context, pod string) (io.ReadCloser, error) {
	log, err := c.Core.CoreV1().Pods(c.Namespace).GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log of pod %s: %w", pod, err)
	}
	return log, nil
}
