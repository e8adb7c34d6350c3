// Package virtconfig reads the KubeVirt configuration: what an administrator decides about all machines. It does not know what
// follows from it.
package virtconfig

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/evacuation"
)

// Read returns the configuration in the namespace that Berth is installed in; configurations of other namespaces have no effect.
// Without one it is empty, and everything has its default.
func Read(ctx context.Context, reader client.Reader, namespace string) (kubevirt.KubeVirtConfiguration, error) {
	k, err := cluster.Get[kubevirt.KubeVirt](ctx, reader, namespace, kubevirt.ConfigurationName)
	if err != nil || k == nil {
		return kubevirt.KubeVirtConfiguration{}, err
	}
	return k.Spec.Configuration, nil
}

// Strategy returns a strategy as decisions see it.
func Strategy(s kubevirt.EvictionStrategy) evacuation.Strategy {
	switch s {
	case kubevirt.EvictLiveMigrate:
		return evacuation.Move
	case kubevirt.EvictLiveMigrateIfPossible:
		return evacuation.MoveIfAble
	case kubevirt.EvictExternal:
		return evacuation.External
	case kubevirt.EvictNone:
	}
	return evacuation.None
}
