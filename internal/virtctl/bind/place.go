package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// kvm is the resource that nodes with a working KVM offer.
const kvm corev1.ResourceName = "devices.kubevirt.io/kvm"

// OnNode returns the place that a node of the cluster is.
func OnNode(ctx context.Context, c *kube.Client, name string) (Place, error) {
	_, err := c.Core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Place{}, fmt.Errorf("there is no node %s in this cluster", name)
	}
	return Place{Node: name}, nil // who may not read nodes may still name one
}

// LikeVM returns the place that a machine of the client's namespace says: the node it runs on, or else any node that can run it,
// beside the volumes it has.
func LikeVM(ctx context.Context, c *kube.Client, name string) (Place, error) {
	vm, err := kube.Machines.Get(ctx, c, name)
	if err != nil {
		return Place{}, err
	}
	if vm == nil || vm.Spec.Template == nil {
		return Place{}, fmt.Errorf("there is no VM %s/%s", c.Namespace, name)
	}
	instance, err := kube.Instances.Get(ctx, c, name)
	if err != nil {
		return Place{}, err
	}
	if instance != nil && instance.Status.NodeName != "" {
		return Place{Node: instance.Status.NodeName}, nil
	}
	m := &Machine{Name: name, Spec: vm.Spec.Template.Spec}
	if m.Claims, err = boundClaims(ctx, c, vm); err != nil {
		return Place{}, err
	}
	nodes, err := c.Core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err == nil && slices.ContainsFunc(nodes.Items, hasKVM) {
		m.KVM = kvm
	}
	return Place{Like: m}, nil
}

func hasKVM(n corev1.Node) bool {
	offered := n.Status.Allocatable[kvm]
	return !offered.IsZero()
}

// boundClaims returns the claims of a machine whose volumes have their place already. One that only a single pod may use is left
// out: the consumer would wait for the machine to end.
func boundClaims(ctx context.Context, c *kube.Client, vm *kubevirt.VirtualMachine) ([]string, error) {
	var names []string
	for _, d := range kube.Disks(vm, nil) {
		claim, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, d.Claim, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read PVC %s of VM %s: %w", d.Claim, vm.Name, err)
		case claim.Status.Phase == corev1.ClaimBound && !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod):
			names = append(names, d.Claim)
		}
	}
	return names, nil
}

// ErrElsewhere is the error for a claim that is bound already, to a volume that the wanted node cannot use.
var ErrElsewhere = errors.New("it is bound to a volume that this node cannot use")

// Check returns whether a claim that is bound already is where it should be. What it may not read it takes for right.
func (at Place) Check(ctx context.Context, c *kube.Client, claim *corev1.PersistentVolumeClaim) error {
	if at.Node == "" || claim.Spec.VolumeName == "" {
		return nil
	}
	volume, err := c.Core.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return nil
	}
	node, err := c.Core.CoreV1().Nodes().Get(ctx, at.Node, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	selector, err := nodeaffinity.NewNodeSelector(volume.Spec.NodeAffinity.Required)
	if err != nil || selector.Match(node) {
		return nil
	}
	return fmt.Errorf("PVC %s cannot be placed on node %s: %w; delete it and begin again", claim.Name, at.Node, ErrElsewhere)
}
