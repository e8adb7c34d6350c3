package evacuate

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// launcherOn returns the pod that the guest of an instance is in, if that is on the node; nil: it is not, whatever the instance
// says still. A guest that has moved must not be asked to leave the node that it came to.
func launcherOn(ctx context.Context, c *kube.Client, i *kubevirt.VirtualMachineInstance, node string) (*corev1.Pod, error) {
	all, err := launcherpod.Of(ctx, kube.Pods{Client: c}, i)
	if p := launcherpod.Present(all); p != nil && p.Spec.NodeName == node {
		return p, err
	}
	return nil, err
}
