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
	"github.com/berth-vm/berth/internal/token"
)

// authoriseMachine checks for a machine's volume templates what authorise checks for volumes, and stores the proofs on the
// machine: the controller makes those volumes with its own rights, perhaps much later, when a DataSource leads elsewhere. A
// template that did not change keeps its proof, whichever user updates the machine; only proofs made here count.
func (l *lookup) authoriseMachine(ctx context.Context, req admission.Request) admission.Response {
	machine, err := decode[kubevirt.VirtualMachine](req.Object.Raw)
	if err != nil || machine == nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the machine to authorise: %w", err))
	}
	before, err := decode[kubevirt.VirtualMachine](req.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if machine.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	had, kept := map[string]string{}, map[string]*cdiv1.DataVolumeSpec{}
	if before != nil {
		had = token.Proofs(before.Annotations[token.MachineAnnotation])
		for i := range before.Spec.DataVolumeTemplates {
			t := &before.Spec.DataVolumeTemplates[i]
			kept[t.ObjectMeta.Name] = &t.Spec
		}
	}
	proofs := map[string]string{}
	for _, t := range machine.Spec.DataVolumeTemplates {
		name := t.ObjectMeta.Name
		if was := kept[name]; was != nil && equality.Semantic.DeepEqual(*was, t.Spec) {
			if had[name] != "" {
				proofs[name] = had[name]
			}
			continue
		}
		if req.UserInfo.Username == l.self {
			// A restore writes the machine that a snapshot contains, and users who may write snapshots could put anything there.
			// Berth's own right to clone must not serve them, so such a template gets no proof.
			continue
		}
		refused, err := l.prove(ctx, req, name, t.Spec, proofs)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if refused != nil {
			return denied(req, *refused)
		}
	}
	text, err := token.JoinProofs(proofs)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return annotated(machine.Annotations, token.MachineAnnotation, text)
}

// prove adds the proof that the user may have this volume, if it needs one, or says what they may not clone.
func (l *lookup) prove(ctx context.Context, req admission.Request, name string, spec cdiv1.DataVolumeSpec, proofs map[string]string,
) (*token.Object, error) {
	volume := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: name}, Spec: spec}
	source, known, err := l.origin(ctx, volume)
	if err != nil || !known {
		return nil, err
	}
	if source.Namespace == volume.Namespace {
		return nil, nil
	}
	granted, err := l.grant(ctx, req.UserInfo, volume, source)
	if err != nil || granted == nil {
		return &source, err
	}
	proofs[name], err = l.signer.Sign(ctx, *granted)
	return nil, err
}
