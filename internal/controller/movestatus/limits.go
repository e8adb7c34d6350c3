package movestatus

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/names"
)

// configuration returns the limits of a migration in upstream's fields.
func configuration(l launcherapi.MoveLimits) *kubevirt.MigrationConfiguration {
	out := &kubevirt.MigrationConfiguration{
		BandwidthPerMigration: resource.NewQuantity(l.Bandwidth, resource.BinarySI), CompletionTimeoutPerGiB: new(int64(l.Each().Seconds())),
		ProgressTimeout: new(int64(l.Stall().Seconds())), AllowAutoConverge: &l.Converge, AllowPostCopy: new(false),
	}
	if l.Downtime > 0 {
		out.MaxDowntimeMs = &l.Downtime
	}
	return out
}

// Narrowed are the labels that a node must have: what the machine says counts, and the others come besides.
func Narrowed(own, added map[string]string) map[string]string {
	if len(added) == 0 {
		return own
	}
	all := maps.Clone(added)
	maps.Copy(all, own)
	return all
}

// Labels returns the labels of a migration: clients find the migrations of an instance by them, and backups leave migrations out. A name that is
// too long to be a label is left out.
func Labels(m *kubevirt.VirtualMachineInstanceMigration) map[string]string {
	labels := map[string]string{names.NoBackup: "true"} // restored, it would move the machine once more
	if len(validation.IsValidLabelValue(m.Spec.VMIName)) == 0 {
		labels[kubevirt.LabelMigrated] = m.Spec.VMIName
	}
	return labels
}
