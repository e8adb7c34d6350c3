package evacuate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// launcherOn returns the pod that the guest of an instance is in, if that is on the node; nil: it is not, whatever the instance
// says still. A guest that has moved must not be asked to leave the node that it came to.
func launcherOn(ctx context.Context, c *kube.Client, i *kubevirt.VirtualMachineInstance, node string) (*corev1.Pod, error) {
	all, err := launcherpod.Of(ctx, pods{c}, i)
	if p := launcherpod.Present(all); p != nil && p.Spec.NodeName == node {
		return p, err
	}
	return nil, err
}

// pods are the pods of a cluster that the user may read.
type pods struct{ *kube.Client }

// Read implements launcherpod.Reader.
func (p pods) Read(ctx context.Context, namespace, name string, into runtime.Object) (bool, error) {
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

// ReadAll implements launcherpod.Reader.
func (p pods) ReadAll(ctx context.Context, namespace string, with map[string]string, into runtime.Object) error {
	all, err := p.Core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(with).String()})
	if err != nil {
		return fmt.Errorf("list pods of %s: %w", namespace, err)
	}
	all.DeepCopyInto(into.(*corev1.PodList))
	return nil
}
