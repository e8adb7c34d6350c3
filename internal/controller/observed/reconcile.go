package observed

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/reach"
)

// Options are the administrator's settings for all machines.
type Options struct {
	Image string // the launcher's
	// Namespace is the namespace of the KubeVirt configuration.
	Namespace string
	// Emulate allows guests on nodes without working KVM, slowly.
	Emulate bool
	// Reach are the rules for the servers of network disks.
	Reach reach.Rules
	// HostDirectories are the directories of nodes whose files any machine may have as hostDisk.
	HostDirectories []string
}

// KVM is the resource that the node agent advertises where KVM works.
const KVM corev1.ResourceName = "devices.kubevirt.io/kvm"

func (o Options) kvm() corev1.ResourceName {
	if o.Emulate {
		return ""
	}
	return KVM
}
