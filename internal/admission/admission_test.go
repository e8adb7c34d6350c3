package admission

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/pkg/claim"
)

// test/apiserver tests against the real API server that each sentence reaches the user. The tests here need no server.

func TestResponse(t *testing.T) {
	var c causes
	if got := c.response(); !got.Allowed {
		t.Errorf("no causes: got %+v", got)
	}
	c.invalid(field.NewPath("spec", "a"), "a is %d", 1)
	c.missing(field.NewPath("spec", "b"), "b is missing")
	got := c.response()
	if got.Allowed || got.Result.Code != http.StatusUnprocessableEntity || got.Result.Message != "a is 1; b is missing" {
		t.Errorf("got %+v", got.Result)
	}
	want := []metav1.StatusCause{
		{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.a", Message: "a is 1"},
		{Type: metav1.CauseTypeFieldValueRequired, Field: "spec.b", Message: "b is missing"},
	}
	if diff := cmp.Diff(want, got.Result.Details.Causes); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
}

func TestMalformedRequest(t *testing.T) {
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte(`{"spec": 1}`)}}}
	l := &lookup{}
	for path, handler := range l.handlers() {
		if got := handler.Handle(t.Context(), req); got.Allowed || got.Result.Code != http.StatusBadRequest {
			t.Errorf("%s: got %+v", path, got.Result)
		}
	}
}

func TestMayTake(t *testing.T) {
	ours := map[string]string{annPopulatedFor: "v"}
	for name, row := range map[string]struct {
		volume, claim map[string]string
		gate, leaving bool
		want          bool
	}{
		"somebody's claim":              {},
		"restored for this volume":      {claim: ours, want: true},
		"restored for another":          {claim: map[string]string{annPopulatedFor: "w"}},
		"filled by this volume":         {claim: map[string]string{names.PodPhase: "Succeeded", names.FilledBy: clonesource.SpecDigest(&cdiv1.DataVolumeSpec{})}, want: true},
		"filled by one like it":         {claim: map[string]string{names.PodPhase: "Succeeded", names.FilledBy: "of another"}},
		"on its way out":                {leaving: true, want: true},
		"adoption by the gate":          {gate: true, want: true},
		"adoption by the volume":        {volume: map[string]string{annAdopt: "true"}, want: true},
		"the volume says no":            {volume: map[string]string{annAdopt: "false"}, gate: true},
		"filled before":                 {volume: map[string]string{annPrePopulated: "v"}, want: true},
		"perhaps a static volume's":     {volume: map[string]string{annCheckStatic: ""}, want: true},
		"an annotation of another kind": {volume: map[string]string{"a": "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Annotations: row.volume}}
			pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "v", Annotations: row.claim}}
			if row.leaving {
				pvc.DeletionTimestamp = &metav1.Time{}
			}
			if got := mayTake(v, pvc, row.gate); got != row.want {
				t.Errorf("got %v, want %v", got, row.want)
			}
		})
	}
}

// TestCarry: whatever a user wrote, the volume ends up with our proof and no other.
func TestCarry(t *testing.T) {
	const path = "/metadata/annotations/cdi.kubevirt.io~1storage.clone.token"
	for name, row := range map[string]struct {
		annotations map[string]string
		proof, want string
	}{
		"none and none":         {nil, "", "null"},
		"none, ours":            {nil, "p", `[{"op":"add","path":"/metadata/annotations","value":{"` + token.Annotation + `":"p"}}]`},
		"others, ours":          {map[string]string{"a": "b"}, "p", `[{"op":"add","path":"` + path + `","value":"p"}]`},
		"theirs, ours":          {map[string]string{token.Annotation: "x"}, "p", `[{"op":"add","path":"` + path + `","value":"p"}]`},
		"ours already":          {map[string]string{token.Annotation: "p"}, "p", "null"},
		"theirs, none":          {map[string]string{token.Annotation: "x"}, "", `[{"op":"remove","path":"` + path + `"}]`},
		"theirs is empty, none": {map[string]string{token.Annotation: ""}, "", `[{"op":"remove","path":"` + path + `"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			got := carry(&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Annotations: row.annotations}}, row.proof)
			text, err := json.Marshal(got.Patches)
			if err != nil || !got.Allowed || string(text) != row.want {
				t.Errorf("got %s, want %s (%v)", text, row.want, err)
			}
		})
	}
}

// TestPatches: only what was filled is patched, and every field that can be filled has a patch.
func TestPatches(t *testing.T) {
	class, mode := "fast", corev1.PersistentVolumeBlock
	r := claim.Result{Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	for _, f := range []string{"storageClassName", "volumeMode", "accessModes", "resources.requests.storage"} {
		r.Filled = []claim.Filled{{Field: f}}
		got := patches(r)
		if top, _, _ := strings.Cut(f, "."); len(got) != 1 || got[0].Path != "/spec/"+top {
			t.Errorf("%s: got %v", f, got)
		}
	}
	r.Filled = nil
	if got := patches(r); got != nil {
		t.Errorf("nothing filled: got %v", got)
	}
}
