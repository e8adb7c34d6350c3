package admission

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/rights"
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
		// This account may clone everything, so its own right proves nothing: the proof of the machine's author came with the volume.
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
	named := name(volume)
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
	answer := carry(volume, proof)
	answer.Patches = append(answer.Patches, named...)
	return answer
}

// name gives a volume with a generateName its name, as the API server would a moment later: the proof is for this volume, and not
// for every one whose name begins like it.
func name(v *cdiv1.DataVolume) []jsonpatch.Operation {
	if v.Name != "" || v.GenerateName == "" {
		return nil
	}
	const random = 10
	v.Name = v.GenerateName[:min(len(v.GenerateName), validation.DNS1123LabelMaxLength-random)] + rand.String(random)
	return []jsonpatch.Operation{jsonpatch.NewOperation("add", "/metadata/name", v.Name)}
}

func denied(req admission.Request, source token.Object) admission.Response {
	return admission.Denied(fmt.Sprintf("User %s has insufficient permissions in clone source namespace %s",
		req.UserInfo.Username, source.Namespace))
}

// populated reports whether the volume's claim comes with its data, as after a restore from a backup.
func populated(v *cdiv1.DataVolume) bool {
	_, pre := v.Annotations[annPrePopulated]
	_, static := v.Annotations[annCheckStatic]
	return pre || static
}

// origin returns what the volume is cloned from, references followed. A reference to something that does not exist yet needs the
// right to its whole namespace. False means that the volume is no clone.
func (l *lookup) origin(ctx context.Context, v *cdiv1.DataVolume) (token.Object, bool, error) {
	if ref := v.Spec.SourceRef; ref != nil && ref.Kind != cdiv1.DataVolumeDataSource {
		return token.Object{}, false, nil
	}
	// asked of the API server: a DataSource that was applied with the volume may not be in the cache
	resolved, err := clonesource.Resolve(ctx, cluster.Reads(l.objects.Live), v.Namespace, &v.Spec)
	if err != nil {
		return token.Object{}, false, err
	}
	at, ok := clonesource.OfSource(v.Namespace, resolved.Source)
	if resolved.Lacks != "" {
		return token.Object{Namespace: at.Namespace}, true, nil
	}
	return at.Object(), ok, nil
}

// grant returns the proof of the user's right to clone; nil if there is none. It is valid for the source alone; a DataSource in
// its source's namespace may refer to a newer source later, and the user's right to that one is checked then.
func (l *lookup) grant(ctx context.Context, user authenticationv1.UserInfo, v *cdiv1.DataVolume, source token.Object,
) (*token.Grant, error) {
	g := &token.Grant{Source: source, Target: token.Object{Namespace: v.Namespace, Name: v.Name}, By: rights.Of(user)}
	if ref := v.Spec.SourceRef; ref != nil && refersIn(v) == source.Namespace {
		g.Via = &token.Object{Namespace: source.Namespace, Name: ref.Name}
	}
	may, err := rights.MayClone(ctx, l.reviews, g.By, source)
	if err != nil || !may {
		return nil, err
	}
	return g, nil
}

// refersIn returns the namespace of the DataSource that a volume names.
func refersIn(v *cdiv1.DataVolume) string {
	if n := v.Spec.SourceRef.Namespace; n != nil && *n != "" {
		return *n
	}
	return v.Namespace
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
