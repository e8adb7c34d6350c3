package clonesource

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Labels returns those of the claim's source and, below it, of what that leads to; the nearer wins. Sources of kinds this package
// does not know have none.
func Labels(ctx context.Context, from Reader, namespace string, spec *corev1.PersistentVolumeClaimSpec) (map[string]string, error) {
	r, ok := Of(namespace, spec)
	if !ok || r.Version == "" {
		return nil, nil
	}
	if ok, err := Granted(ctx, from, namespace, r); !ok || err != nil {
		return nil, err
	}
	out, err := labels(ctx, from, r)
	if err != nil {
		return nil, err
	}
	to, ok, err := Reachable(ctx, from, namespace, r)
	if !ok || err != nil || to == r || to.Version == "" {
		return out, err
	}
	below, err := labels(ctx, from, to)
	return over(out, below), err
}

// over returns the labels of both; what the first says counts.
func over(near, far map[string]string) map[string]string {
	for k, v := range far {
		if _, ok := near[k]; !ok {
			if near == nil {
				near = map[string]string{}
			}
			near[k] = v
		}
	}
	return near
}

// VolumeLabels is Labels for a DataVolume: of the DataSource it names, and of the claim or snapshot it is a copy of.
func VolumeLabels(ctx context.Context, from Reader, namespace string, spec *cdiv1.DataVolumeSpec) (map[string]string, error) {
	if ref := spec.SourceRef; ref != nil && ref.Kind == BackupSource.Kind {
		return labels(ctx, from, At(BackupSource, orIn(ref.Namespace, namespace), ref.Name))
	} else if ref != nil {
		return labels(ctx, from, At(cdiv1.SchemeGroupVersion.WithKind(ref.Kind), orIn(ref.Namespace, namespace), ref.Name))
	}
	if at, ok := OfSource(namespace, spec.Source); ok {
		return labels(ctx, from, at)
	}
	return nil, nil
}

func labels(ctx context.Context, from Reader, r Ref) (map[string]string, error) {
	o := &metav1.PartialObjectMetadata{} // read from the server itself: it is asked once, when a machine starts
	o.SetGroupVersionKind(r.GroupVersionKind)
	if ok, err := from.Read(ctx, r.Namespace, r.Name, o); !ok || err != nil {
		return nil, err
	}
	return o.Labels, nil
}

// whose are the labels of kubevirt.io that say to which machine an object belongs, which a copy of it does not.
var whose = []string{"kubevirt.io/created-by", "vm.kubevirt.io/name"}

// Inherited returns the labels of a source that its copies get too: those of kubevirt.io, which say what is on it (the instance type and
// preference that suit it, dynamic-credentials-support). Labels of cdi.kubevirt.io say what a controller does with the source itself: a copy with
// its dataImportCron would be removed with the cron's imports.
func Inherited(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		if ofKubeVirt(key) && !slices.Contains(whose, key) {
			out[key] = value
		}
	}
	return out
}

// ofKubeVirt reports whether a label's key has the domain kubevirt.io or one below it, but for CDI's.
func ofKubeVirt(key string) bool {
	domain := key[:strings.Index(key, "/")+1]
	return (domain == "kubevirt.io/" || strings.HasSuffix(domain, ".kubevirt.io/")) && domain != "cdi.kubevirt.io/"
}

// ImageLabels returns the labels that are accepted from an image: valid labels of kubevirt.io only, because an image is not
// trusted and must not change how controllers treat the claim.
func ImageLabels(all map[string]string) map[string]string {
	labels := map[string]string{}
	for key, value := range all {
		if ofKubeVirt(key) && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			labels[key] = value
		}
	}
	return labels
}
