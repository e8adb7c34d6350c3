package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

const definitionKind = "CustomResourceDefinition"

// object is one that was installed.
type object struct {
	unstructured.Unstructured
	resource schema.GroupVersionResource
}

func (o object) isOneOf(kinds []string) bool { return slices.Contains(kinds, o.GetKind()) }

func (o object) title() string {
	if o.GetNamespace() != "" {
		return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
	}
	return o.GetKind() + " " + o.GetName()
}

func (o object) in(c *kube.Client) dynamic.ResourceInterface {
	return c.Dynamic.Resource(o.resource).Namespace(o.GetNamespace())
}

// find returns all objects with the label, of all kinds that the cluster has.
func find(ctx context.Context, c *kube.Client) ([]object, error) {
	lists, err := c.Core.Discovery().ServerPreferredResources()
	var some *discovery.ErrGroupDiscoveryFailed
	// A group without a server, as ours after a try that stopped half-way, hides no other.
	if err != nil && !errors.As(err, &some) {
		return nil, fmt.Errorf("ask the cluster for its kinds: %w", err)
	}
	var all []object
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("ask the cluster for its kinds: %w", err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") || r.Name == "endpoints" { // made by Kubernetes, which warns of them
				continue
			}
			found, err := listAll(ctx, c, version.WithResource(r.Name), Installed+"=true")
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

// listAll returns the objects of a kind in all namespaces; none if the cluster has no such kind.
func listAll(ctx context.Context, c *kube.Client, r schema.GroupVersionResource, selector string) ([]object, error) {
	list, err := c.Dynamic.Resource(r).List(ctx, metav1.ListOptions{LabelSelector: selector})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err), apierrors.IsServiceUnavailable(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list %s: %w", r.Resource, err)
	}
	all := make([]object, len(list.Items))
	for i := range list.Items {
		all[i] = object{list.Items[i], r}
	}
	return all, nil
}

// definition is a kind that was installed.
type definition struct {
	resource schema.GroupVersionResource
	kind     string
}

// settings are kinds whose objects Berth makes itself, or that only set it up.
var settings = []string{"CDI", "CDIConfig", "StorageProfile", "ObjectTransfer", "KubeVirt", "DiskAccess"}

func (u *uninstallation) readDefinitions() error {
	for _, o := range u.all {
		if o.GetKind() != definitionKind {
			continue
		}
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		if err != nil {
			return fmt.Errorf("%s: %w", o.title(), err)
		}
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		for _, v := range versions {
			version, _ := v.(map[string]any)
			if version["served"] != true {
				continue
			}
			name, _ := version["name"].(string)
			u.definitions = append(u.definitions, definition{schema.GroupVersionResource{Group: group, Version: name, Resource: plural}, kind})
			break
		}
	}
	return nil
}

// made returns what people have made with Berth, a few words for each kind.
func (u *uninstallation) made(ctx context.Context) ([]string, error) {
	var made []string
	count := func(n int, kind string) {
		if n == 1 {
			made = append(made, "1 "+kind)
		} else if n > 1 {
			made = append(made, fmt.Sprintf("%d %ss", n, kind))
		}
	}
	for _, d := range u.definitions {
		if slices.Contains(settings, d.kind) {
			continue
		}
		found, err := listAll(ctx, u.client, d.resource, "")
		if err != nil {
			return nil, err
		}
		count(len(slices.DeleteFunc(found, object.isInstalled)), d.kind)
	}
	claims, err := u.client.Core.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	waiting := 0
	for i := range claims.Items {
		if waits(&claims.Items[i]) {
			waiting++
		}
	}
	count(waiting, "PersistentVolumeClaim that Berth has yet to fill")
	return made, nil
}

// waits reports whether a claim waits for Berth to fill it.
func waits(claim *corev1.PersistentVolumeClaim) bool {
	from := claim.Spec.DataSourceRef
	return claim.Status.Phase == corev1.ClaimPending && from != nil && from.APIGroup != nil && *from.APIGroup == "cdi.kubevirt.io"
}

// mayDelete asks for every right that will be needed before one is used.
func (u *uninstallation) mayDelete(ctx context.Context) error {
	type right struct{ verb, group, resource string }
	needed := []right{{"patch", "", "pods"}, {"patch", "", "persistentvolumeclaims"}}
	for _, o := range u.all {
		needed = append(needed, right{"delete", o.resource.Group, o.resource.Resource})
	}
	for _, d := range u.definitions {
		needed = append(needed, right{"patch", d.resource.Group, d.resource.Resource})
	}
	asked := map[right]bool{}
	var lacks []string
	for _, r := range needed {
		if asked[r] {
			continue
		}
		asked[r] = true
		review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{Verb: r.verb, Group: r.group, Resource: r.resource},
		}}
		answer, err := u.client.Core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask for your rights: %w", err)
		}
		if !answer.Status.Allowed {
			lacks = append(lacks, r.verb+" "+r.resource)
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("you lack rights in this cluster that this needs: %s; nothing was changed", strings.Join(lacks, ", "))
	}
	return nil
}

// isGone reports whether an object that was read is no more; one of the same name that was made since is another one.
func isGone(ctx context.Context, c *kube.Client, o object) (bool, error) {
	now, err := o.in(c).Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read %s: %w", o.title(), err)
	}
	return now.GetUID() != o.GetUID(), nil
}
