// Package rights asks the API server what a user may do: when they ask for a volume, and again when it is made, because
// that may be much later.
//
// It keeps nothing, and does not know what the answer is for.
package rights

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/token"
)

// Reviews is the client for questions about rights.
type Reviews = authorization.SubjectAccessReviewInterface

// Of returns the user of a request, as a proof keeps them.
func Of(u authenticationv1.UserInfo) token.User {
	user := token.User{Name: u.Username, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if user.Extra == nil {
			user.Extra = map[string][]string{}
		}
		user.Extra[key] = values
	}
	return user
}

// MayClone asks whether the user may clone the source. Either they may create datavolumes/source of its name; or they may do what
// comes to the same: create pods for a claim, and for a snapshot create pods and claims. These are the questions that CDI asks,
// with its words (it asks for claims as "pvcs", so that only a role for everything says yes): who may clone there may clone here,
// and no one else. A source without a name stands for everything in its namespace.
func MayClone(ctx context.Context, reviews Reviews, user token.User, source token.Object) (bool, error) {
	ask := func(group, resource, subresource string) (bool, error) {
		return allowed(ctx, reviews, user, authorizationv1.ResourceAttributes{
			Namespace: source.Namespace, Name: source.Name, Verb: "create", Group: group, Resource: resource, Subresource: subresource})
	}
	may, err := ask(cdiv1.SchemeGroupVersion.Group, "datavolumes", cdiv1.DataVolumeCloneSourceSubresource)
	if err != nil || may {
		return may, err
	}
	instead := []string{"pods", "pvcs"}
	if source.Kind == "PersistentVolumeClaim" {
		instead = instead[:1]
	}
	for _, resource := range instead {
		if may, err := ask("", resource, ""); err != nil || !may {
			return false, err
		}
	}
	return true, nil
}

// MayRun asks whether the user may create pods in the namespace.
func MayRun(ctx context.Context, reviews Reviews, user token.User, namespace string) (bool, error) {
	return allowed(ctx, reviews, user, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"})
}

func allowed(ctx context.Context, reviews Reviews, user token.User, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &what, User: user.Name, Groups: user.Groups, UID: user.UID, Extra: map[string]authorizationv1.ExtraValue{},
	}}
	for key, values := range user.Extra {
		review.Spec.Extra[key] = values
	}
	answer, err := reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may %s %s in %s: %w", user.Name, what.Verb, what.Resource, what.Namespace, err)
	}
	return answer.Status.Allowed, nil
}
