package admission

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-vm/berth/internal/token"
)

// authorise lets a user make a clone out of another namespace if they may, and has the proof travel with the volume.
// A volume keeps its proof: an update that drops or replaces it, as kubectl replace does, has it put back.
func (l *lookup) authorise(ctx context.Context, req admission.Request) admission.Response {
	volume, err := decode[cdiv1.DataVolume](req.Object.Raw)
	if err != nil || volume == nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the volume to authorise: %w", err))
	}
	if req.Operation == admissionv1.Update {
		before, err := decode[cdiv1.DataVolume](req.OldObject.Raw)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		return carry(volume, before.Annotations[token.Annotation])
	}
	if req.UserInfo.Username == l.self {
		// Our own right to clone is everybody's: what the author of a machine was allowed to came with the volume.
		return admission.Allowed("")
	}
	volume.Namespace = req.Namespace
	source, known, err := l.origin(ctx, volume)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if !known || source.Namespace == volume.Namespace {
		return carry(volume, "")
	}
	granted, err := l.grant(ctx, req.UserInfo, volume, source)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if granted == nil {
		if populated(volume) {
			return carry(volume, "") // nothing will be cloned
		}
		return denied(req, source)
	}
	proof, err := l.signer.Sign(ctx, *granted)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return carry(volume, proof)
}

func denied(req admission.Request, source token.Object) admission.Response {
	return admission.Denied(fmt.Sprintf("User %s has insufficient permissions in clone source namespace %s",
		req.UserInfo.Username, source.Namespace))
}

// populated says that the volume's claim comes with its data, as after a restore from a backup.
func populated(v *cdiv1.DataVolume) bool {
	_, pre := v.Annotations[annPrePopulated]
	_, static := v.Annotations[annCheckStatic]
	return pre || static
}

// origin is what the volume is cloned from, references followed. A reference to something that does not exist yet
// stands for its whole namespace. False means that the volume is no clone.
func (l *lookup) origin(ctx context.Context, v *cdiv1.DataVolume) (token.Object, bool, error) {
	s := v.Spec.Source
	switch {
	case s != nil && s.PVC != nil:
		return ofClaim(s.PVC), true, nil
	case s != nil && s.Snapshot != nil:
		return ofSnapshot(s.Snapshot), true, nil
	case v.Spec.SourceRef == nil || v.Spec.SourceRef.Kind != cdiv1.DataVolumeDataSource:
		return token.Object{}, false, nil
	}
	namespace, name := v.Namespace, v.Spec.SourceRef.Name
	if n := v.Spec.SourceRef.Namespace; n != nil && *n != "" {
		namespace = *n
	}
	// A DataSource may name another one, and that one no further.
	for range 2 {
		ds, err := l.dataSource(ctx, namespace, name)
		if err != nil {
			return token.Object{}, false, err
		}
		switch {
		case ds == nil:
			return token.Object{Namespace: namespace}, true, nil
		case ds.Spec.Source.PVC != nil:
			return ofClaim(ds.Spec.Source.PVC), true, nil
		case ds.Spec.Source.Snapshot != nil:
			return ofSnapshot(ds.Spec.Source.Snapshot), true, nil
		case ds.Spec.Source.DataSource != nil:
			namespace, name = ds.Spec.Source.DataSource.Namespace, ds.Spec.Source.DataSource.Name
		}
	}
	return token.Object{Namespace: namespace}, true, nil
}

func ofClaim(p *cdiv1.DataVolumeSourcePVC) token.Object {
	return token.Object{Kind: "PersistentVolumeClaim", Namespace: p.Namespace, Name: p.Name}
}

func ofSnapshot(s *cdiv1.DataVolumeSourceSnapshot) token.Object {
	return token.Object{Kind: "VolumeSnapshot", Namespace: s.Namespace, Name: s.Name}
}

// grant is what the user may do, nil if nothing. A reference is granted for all of its namespace where the user has
// that right, because it will name another claim as soon as there is a newer image.
func (l *lookup) grant(ctx context.Context, user authenticationv1.UserInfo, v *cdiv1.DataVolume, source token.Object,
) (*token.Grant, error) {
	g := &token.Grant{Source: source, Target: token.Object{Namespace: v.Namespace, Name: v.Name}}
	if v.Name == "" {
		g.Target.Name = v.GenerateName + "*"
	}
	all, err := l.mayClone(ctx, user, source.Namespace, "")
	if err != nil {
		return nil, err
	}
	if all {
		if v.Spec.SourceRef != nil {
			g.Source = token.Object{Namespace: source.Namespace}
		}
		return g, nil
	}
	if source.Name == "" {
		return nil, nil
	}
	this, err := l.mayClone(ctx, user, source.Namespace, source.Name)
	if err != nil || !this {
		return nil, err
	}
	return g, nil
}

// mayClone asks the API server whether the user may create datavolumes/source in the namespace (of this name, if one is
// given), or pods: whoever may run a pod there can read its claims anyway.
func (l *lookup) mayClone(ctx context.Context, user authenticationv1.UserInfo, namespace, name string) (bool, error) {
	asked := []authorizationv1.ResourceAttributes{{
		Namespace: namespace, Name: name, Verb: "create", Group: cdiv1.SchemeGroupVersion.Group, Resource: "datavolumes",
		Subresource: cdiv1.DataVolumeCloneSourceSubresource,
	}}
	if name == "" {
		asked = append(asked, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"})
	}
	for _, attributes := range asked {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &attributes, User: user.Username, Groups: user.Groups, UID: user.UID,
			Extra: map[string]authorizationv1.ExtraValue{},
		}}
		for key, values := range user.Extra {
			review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
		}
		allowed, err := l.review(ctx, review)
		if err != nil || allowed {
			return allowed, err
		}
	}
	return false, nil
}

// carry makes proof the volume's only one; empty means that it is to have none.
func carry(v *cdiv1.DataVolume, proof string) admission.Response {
	return annotated(v.Annotations, token.Annotation, proof)
}

// annotated makes value the annotation's; empty means that it is not to be there.
func annotated(have map[string]string, key, value string) admission.Response {
	old, any := have[key]
	path := "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1")
	switch {
	case old == value && any == (value != ""):
		return admission.Allowed("")
	case value == "":
		return admission.Patched("", jsonpatch.NewOperation("remove", path, nil))
	case have == nil:
		return admission.Patched("", jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{key: value}))
	}
	return admission.Patched("", jsonpatch.NewOperation("add", path, value))
}
