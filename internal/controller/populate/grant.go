package populate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// grantKind is how a namespace lets others refer to its objects. It is an add-on of the Gateway project, which Kubernetes
// uses for data sources of claims in other namespaces; a cluster may be without it, and then nothing is granted.
var grantKind = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"}

// grantSpec is what a ReferenceGrant says.
type grantSpec struct {
	From []struct {
		Group     string `json:"group"`
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
	} `json:"from"`
	To []struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
		Name  string `json:"name,omitempty"` // empty: every one
	} `json:"to"`
}

// granted says whether the namespace of a target's source lets it refer to the source. Permissions are read from the API
// server itself: one that was withdrawn must not be used once more.
func (r *Reconciler) granted(ctx context.Context, target *corev1.PersistentVolumeClaim) (bool, error) {
	all := &unstructured.UnstructuredList{}
	list := grantKind
	list.Kind += "List"
	all.SetGroupVersionKind(list)
	err := r.live.List(ctx, all, client.InNamespace(sourceSpace(target)))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list ReferenceGrants of %s: %w", sourceSpace(target), err)
	}
	for _, one := range all.Items {
		var grant struct {
			Spec grantSpec `json:"spec"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object, &grant); err != nil {
			continue // what cannot be read grants nothing
		}
		if grant.Spec.covers(target) {
			return true, nil
		}
	}
	return false, nil
}

func (g grantSpec) covers(target *corev1.PersistentVolumeClaim) bool {
	from, to := false, false
	for _, f := range g.From {
		from = from || f.Group == corev1.GroupName && f.Kind == "PersistentVolumeClaim" && f.Namespace == target.Namespace
	}
	ref := target.Spec.DataSourceRef
	for _, t := range g.To {
		to = to || t.Group == *ref.APIGroup && t.Kind == ref.Kind && (t.Name == "" || t.Name == ref.Name)
	}
	return from && to
}
