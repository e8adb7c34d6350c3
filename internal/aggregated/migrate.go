package aggregated

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		switch {
		case apierrors.IsNotFound(err):
			i = nil
		case err != nil:
			return Change{}, err
		}
		all, err := s.Cluster.Migrations(ctx, a.namespace)
		if err != nil {
			return Change{}, err
		}
		return migrateMachine(m, i, all, o)
	})
}

// migrateMachine moves a guest, or the disks of a machine that is stopped. Its messages are the ones clients know. Other
// obstacles are reported by the migration, or by the webhook for new ones.
func migrateMachine(m *kubevirt.VirtualMachine, i *kubevirt.VirtualMachineInstance, all []kubevirt.VirtualMachineInstanceMigration,
	o kubevirt.MigrateOptions,
) (Change, error) {
	if i != nil && (!runs(i) || i.Status.Phase != kubevirt.PhaseRunning) {
		return Change{}, conflict(m, "VM is not running")
	}
	for _, other := range all {
		if other.Spec.VMIName == m.Name && !other.Ended() {
			return Change{}, conflict(m, "in-flight migration detected. Active migration job (%s) is currently already in progress for VMI %s.",
				other.UID, m.Name)
		}
	}
	asked := &kubevirt.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kubevirt-migrate-vm-", Namespace: m.Namespace, Labels: map[string]string{kubevirt.LabelMigrated: m.Name}},
		Spec:       kubevirt.MigrationSpec{VMIName: m.Name, AddedNodeSelector: o.AddedNodeSelector},
	}
	if i == nil { // it has nothing but disks to move
		asked.Annotations = map[string]string{kubevirt.AnnOffline: "true"}
	}
	return Change{Migration: asked}, nil
}
