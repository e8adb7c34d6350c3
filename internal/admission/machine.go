package admission

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// authoriseMachine asks of a machine's volume templates what authorise asks of volumes: the controller makes those
// volumes with its own rights, so the rights of the user who wrote the machine have to be checked here.
func (l *lookup) authoriseMachine(ctx context.Context, req admission.Request) admission.Response {
	machine, err := decode[kubevirt.VirtualMachine](req.Object.Raw)
	if err != nil || machine == nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the machine to authorise: %w", err))
	}
	before, err := decode[kubevirt.VirtualMachine](req.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if machine.DeletionTimestamp != nil || before != nil &&
		equality.Semantic.DeepEqual(before.Spec.DataVolumeTemplates, machine.Spec.DataVolumeTemplates) {
		return admission.Allowed("")
	}
	for _, template := range machine.Spec.DataVolumeTemplates {
		volume := &cdiv1.DataVolume{
			ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: template.ObjectMeta.Name}, Spec: template.Spec,
		}
		source, known, err := l.origin(ctx, volume)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if !known || source.Namespace == volume.Namespace {
			continue
		}
		granted, err := l.grant(ctx, req.UserInfo, volume, source)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if granted == nil {
			return denied(req, source)
		}
	}
	return admission.Allowed("")
}
