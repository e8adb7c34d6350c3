package clonesource

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/names"
)

// Grant is how a namespace lets others refer to its objects. It is an add-on of the Gateway project, which Kubernetes
// uses for data sources of claims in other namespaces; a cluster may be without it, and then nothing is granted.
var Grant = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"}

// grantSpec is the spec of a ReferenceGrant.
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

// Granted reports whether a claim of this namespace may refer to its source: one beside it, or one whose namespace permits it, by
// a ReferenceGrant or as a library of images. live must read permissions from the API server itself: one that was withdrawn must
// not be used once more.
func Granted(ctx context.Context, live Reader, namespace string, source Ref) (bool, error) {
	if source.Namespace == namespace {
		return true, nil
	}
	all := &unstructured.UnstructuredList{}
	list := Grant
	list.Kind += "List"
	all.SetGroupVersionKind(list)
	if err := live.ReadAll(ctx, source.Namespace, nil, all); err != nil {
		return false, err
	}
	for _, one := range all.Items {
		var grant struct {
			Spec grantSpec `json:"spec"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object, &grant); err != nil {
			continue // what cannot be read grants nothing
		}
		if grant.Spec.covers(namespace, source) {
			return true, nil
		}
	}
	return shared(ctx, live, namespace, source)
}

func (g grantSpec) covers(namespace string, source Ref) bool {
	from, to := false, false
	for _, f := range g.From {
		from = from || f.Group == corev1.GroupName && f.Kind == "PersistentVolumeClaim" && f.Namespace == namespace
	}
	for _, t := range g.To {
		to = to || t.Group == source.Group && t.Kind == source.Kind && (t.Name == "" || t.Name == source.Name)
	}
	return from && to
}

// shared reports whether the source is in a library of images that claims of this namespace may use. Both namespaces have to say
// so, with labels that only those who may change namespaces can set: the library that it is one, and the other that it may use
// it. It holds for the names of images only, not for claims and snapshots themselves.
func shared(ctx context.Context, live Reader, namespace string, source Ref) (bool, error) {
	if source.Group != cdiv1.SchemeGroupVersion.Group || source.Kind != cdiv1.DataVolumeDataSource && source.Kind != cdiv1.VolumeCloneSourceRef {
		return false, nil
	}
	var here corev1.Namespace
	if there, err := live.Read(ctx, "", namespace, &here); !there || err != nil || here.Labels[names.UsesImages+source.Namespace] != names.Allowed {
		return false, err
	}
	var library corev1.Namespace
	there, err := live.Read(ctx, "", source.Namespace, &library)
	return there && library.Labels[names.ImageLibrary] == "true", err
}
