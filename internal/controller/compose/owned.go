package compose

import (
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// WorstVolume returns the worst state of the DataVolumes of a machine's templates: Failed, Failing, or Ready for everything else;
// and the reason, for messages.
func (w *Machine) WorstVolume() (machine.Disks, string) {
	worst, text := machine.Ready, ""
	for _, t := range w.Object.Spec.DataVolumeTemplates {
		v := w.Volumes[t.ObjectMeta.Name]
		if v == nil || v.Status.Phase == cdiv1.Succeeded {
			continue
		}
		if is, why := diskstate.VolumeSituation(v); is >= machine.Failing && is > worst {
			worst, text = is, why
		}
	}
	return worst, text
}
