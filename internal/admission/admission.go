// Package admission answers the API server's webhooks: it refuses objects of cdi.kubevirt.io that make no sense, with the
// sentences clients of that API know; checks that a user may clone what they ask to clone; and completes claims that are labelled
// for it.
//
// The checks are pure functions from objects to causes. What they need to know of the cluster they get from a lookup, which only
// reads. Nothing depends on the checks having run: a webhook that is down lets volumes through unchecked (the controllers refuse
// what they cannot do), except where that would give users a right they do not have.
package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// causes is why an object is refused; none means that it is not.
type causes []metav1.StatusCause

func (c *causes) invalid(at *field.Path, format string, args ...any) {
	*c = append(*c, metav1.StatusCause{
		Type: metav1.CauseTypeFieldValueInvalid, Field: at.String(), Message: fmt.Sprintf(format, args...),
	})
}

func (c *causes) missing(at *field.Path, format string, args ...any) {
	*c = append(*c, metav1.StatusCause{
		Type: metav1.CauseTypeFieldValueRequired, Field: at.String(), Message: fmt.Sprintf(format, args...),
	})
}

// response returns the verdict: 422 with all causes, or yes.
func (c causes) response() admission.Response {
	if len(c) == 0 {
		return admission.Allowed("")
	}
	messages := make([]string, len(c))
	for i, cause := range c {
		messages[i] = cause.Message
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnprocessableEntity,
		Reason:  metav1.StatusReasonInvalid,
		Message: strings.Join(messages, "; "),
		Details: &metav1.StatusDetails{Causes: c},
	}}}
}

// check judges an object: before is nil when it is being made, after is nil when it is being deleted.
type check[T any] func(ctx context.Context, before, after *T) (causes, error)

// Handle decodes what the API server sent. An error of the check itself is no verdict about the object: it is a 500,
// and the webhook's failure policy says what happens.
func (f check[T]) Handle(ctx context.Context, req admission.Request) admission.Response {
	before, err := decode[T](req.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	after, err := decode[T](req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	found, err := f(ctx, before, after)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return found.response()
}

func decode[T any](raw []byte) (*T, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	object := new(T)
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, fmt.Errorf("decode %T: %w", *object, err)
	}
	return object, nil
}

// immutable is true for an update that changes what must not change. An object that is being deleted may lose its
// finalizers whatever else is in it.
func immutable(deleting *metav1.Time, same bool) bool { return deleting == nil && !same }
