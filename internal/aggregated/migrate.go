package aggregated

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// migrate asks for a machine's guest to be moved.
func (s *Server) migrate(a asked) (int, any, error) {
	var o kubevirt.MigrateOptions
	if err := a.into(&o); err != nil {
		return 0, nil, err
	}
	return s.carry(a, o.DryRun, func(ctx context.Context) (Change, error) {
		m, err := s.Cluster.Machine(ctx, a.namespace, a.name)
		if err != nil {
			return Change{}, err
		}
		i, err := s.Cluster.Instance(ctx, a.namespace, a.name)
		if err != nil {
			return Change{}, err
		}
		all, err := s.Cluster.Migrations(ctx, a.namespace)
		if err != nil {
			return Change{}, err
		}
		return migrateMachine(m, i, all, o)
	})
}

// migrateMachine is the change that moves a guest. Its words are the ones clients know. What else is in the way the migration says, or
// whoever looks at new ones.
func migrateMachine(m *kubevirt.VirtualMachine, i *kubevirt.VirtualMachineInstance, all []kubevirt.VirtualMachineInstanceMigration,
	o kubevirt.MigrateOptions,
) (Change, error) {
	if !runs(i) || i.Status.Phase != kubevirt.PhaseRunning {
		return Change{}, conflict(m, "VM is not running")
	}
	for _, other := range all {
		if other.Spec.VMIName == i.Name && !other.Ended() {
			return Change{}, conflict(m, "in-flight migration detected. Active migration job (%s) is currently already in progress for VMI %s.",
				other.UID, i.Name)
		}
	}
	return Change{Migration: &kubevirt.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kubevirt-migrate-vm-", Namespace: m.Namespace, Labels: map[string]string{kubevirt.LabelMigrated: i.Name}},
		Spec:       kubevirt.MigrationSpec{VMIName: i.Name, AddedNodeSelector: o.AddedNodeSelector},
	}}, nil
}
