package migration

import (
	"cmp"

	migrationsv1 "github.com/berth-vm/berth/api/migrations/v1alpha1"
)

// Policy returns the policy for the migrations of an instance with these labels in a namespace with those; nil if none selects it. The one with most
// labels counts, then the one with most labels of the instance, then the first by name, as upstream.
func Policy(all []migrationsv1.MigrationPolicy, instance, namespace map[string]string) *migrationsv1.MigrationPolicy {
	var best *migrationsv1.MigrationPolicy
	for i := range all {
		p := &all[i]
		s := p.Spec.Selectors
		if s == nil || !hasLabels(instance, s.VirtualMachineInstanceSelector) || !hasLabels(namespace, s.NamespaceSelector) {
			continue
		}
		if best == nil || comparePolicies(p, best) > 0 {
			best = p
		}
	}
	return best
}

// comparePolicies is positive if a comes before b.
func comparePolicies(a, b *migrationsv1.MigrationPolicy) int {
	x, y := a.Spec.Selectors, b.Spec.Selectors
	return cmp.Or(
		cmp.Compare(len(x.VirtualMachineInstanceSelector)+len(x.NamespaceSelector), len(y.VirtualMachineInstanceSelector)+len(y.NamespaceSelector)),
		cmp.Compare(len(x.VirtualMachineInstanceSelector), len(y.VirtualMachineInstanceSelector)),
		cmp.Compare(b.Name, a.Name),
	)
}

func hasLabels(labels map[string]string, wanted migrationsv1.LabelSelector) bool {
	for key, value := range wanted {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}
