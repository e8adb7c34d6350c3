package movestatus

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
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

// migrationLabels are what clients find the migrations of an instance by. A name that is too long to be a label has none.
func migrationLabels(m *kubevirt.VirtualMachineInstanceMigration) map[string]string {
	if len(validation.IsValidLabelValue(m.Spec.VMIName)) > 0 {
		return nil
	}
	return map[string]string{kubevirt.LabelMigrated: m.Spec.VMIName}
}
