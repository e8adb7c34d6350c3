package takeover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/takeover/plan"
	"github.com/berth-vm/berth/internal/virtctl/uninstall"
)

// CDI's programs. The operator would start the others again.
const (
	operatorName   = "cdi-operator"
	controllerName = "cdi-deployment"
	apiName        = "cdi-apiserver"
	proxyName      = "cdi-uploadproxy"
)

// found is CDI on a cluster, and what there is of its kinds.
type found struct {
	programs []appsv1.Deployment
	rows     []row
	calls    []object // what calls CDI's programs
	others   []object // of CDI's kinds, with finalizers that only CDI takes away
}

// row is the plan for one object.
type row struct {
	plan.Plan
	kind, namespace, name string
	claim, prime          *corev1.PersistentVolumeClaim // prime is what is filled in the claim's stead; nil: there is none
	uid                   types.UID                     // of the order that a claim is filled for
}

func (r row) title() string { return fmt.Sprintf("%s %s/%s", r.kind, r.namespace, r.name) }

// object is one that CDI leaves behind.
type object struct {
	unstructured.Unstructured
	resource schema.GroupVersionResource
}

func (o object) title() string { return o.GetKind() + "/" + o.GetName() }

// find reads the cluster.
func find(ctx context.Context, c *kube.Client) (*found, error) {
	f := &found{}
	all, err := c.Core.AppsV1().Deployments("").List(ctx, metav1.ListOptions{LabelSelector: "!" + uninstall.Installed})
	if err != nil {
		return nil, fmt.Errorf("look for CDI: %w", err)
	}
	for _, name := range []string{operatorName, controllerName, apiName, proxyName} { // in the order in which they are stopped
		for _, d := range all.Items {
			if d.Name == name {
				f.programs = append(f.programs, d)
			}
		}
	}
	sources, err := f.findSources(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.findVolumes(ctx, c, sources), f.findCrons(ctx, c)); err != nil {
		return nil, err
	}
	slices.SortStableFunc(f.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind))
	})
	for _, r := range []schema.GroupVersionResource{
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
	} {
		hooks, err := list(ctx, c, r)
		if err != nil {
			return nil, err
		}
		f.calls = append(f.calls, slices.DeleteFunc(hooks, func(o object) bool { return !f.isCalled(o) })...)
	}
	for _, resource := range []string{"cdis", "datavolumes", "objecttransfers", "dataimportcrons"} {
		kinds, err := list(ctx, c, cdiv1.SchemeGroupVersion.WithResource(resource))
		if err != nil {
			return nil, err
		}
		f.others = append(f.others, slices.DeleteFunc(kinds, func(o object) bool { return !slices.ContainsFunc(o.GetFinalizers(), onlyCDIs) })...)
	}
	return f, nil
}

// onlyCDIs reports whether only CDI removes the finalizer, so that it stays when CDI is gone.
func onlyCDIs(finalizer string) bool {
	return slices.Contains([]string{
		"operator.cdi.kubevirt.io", "cdi.kubevirt.io/dataVolumeFinalizer", "cdi.kubevirt.io/objectTransfer", "cdi.kubevirt.io/importImageStream",
	}, finalizer)
}

// isCalled reports whether all that a configuration of webhooks calls is CDI's.
func (f *found) isCalled(o object) bool {
	hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil || len(hooks) == 0 {
		return false
	}
	for _, h := range hooks {
		hook, _ := h.(map[string]any)
		namespace, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "namespace")
		name, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "name")
		if name != "cdi-api" || !slices.ContainsFunc(f.programs, func(d appsv1.Deployment) bool { return d.Namespace == namespace }) {
			return false
		}
	}
	return true
}

func list(ctx context.Context, c *kube.Client, r schema.GroupVersionResource) ([]object, error) {
	all, err := c.Dynamic.Resource(r).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // the cluster has no such kind
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r.Resource, err)
	}
	out := make([]object, len(all.Items))
	for i := range all.Items {
		out[i] = object{all.Items[i], r}
	}
	return out, nil
}

// listAs reads all objects of a kind of CDI, as the type that the kind has in Go.
func listAs[T any](ctx context.Context, c *kube.Client, resource string) ([]T, error) {
	all, err := list(ctx, c, cdiv1.SchemeGroupVersion.WithResource(resource))
	if err != nil {
		return nil, err
	}
	out := make([]T, len(all))
	var failed []error
	for i, o := range all {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &out[i]); err != nil {
			failed = append(failed, fmt.Errorf("read %s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err))
		}
	}
	return out, errors.Join(failed...)
}

// dataSources are the DataSources of the cluster, for following references.
type dataSources map[types.NamespacedName]*cdiv1.DataSource

// Read reads one.
func (s dataSources) Read(_ context.Context, namespace, name string, into runtime.Object) (bool, error) {
	found := s[types.NamespacedName{Namespace: namespace, Name: name}]
	to, ok := into.(*cdiv1.DataSource)
	if found == nil || !ok {
		return false, nil
	}
	found.DeepCopyInto(to)
	return true, nil
}

// ReadAll reads none: references are followed one by one.
func (s dataSources) ReadAll(context.Context, string, map[string]string, runtime.Object) error {
	return nil
}

func (f *found) findSources(ctx context.Context, c *kube.Client) (dataSources, error) {
	sources, err := listAs[cdiv1.DataSource](ctx, c, "datasources")
	if err != nil {
		return nil, err
	}
	by := dataSources{}
	for i := range sources {
		by[types.NamespacedName{Namespace: sources[i].Namespace, Name: sources[i].Name}] = &sources[i]
	}
	for _, s := range by {
		next, err := clonesource.Next(ctx, by, s)
		if err != nil {
			return nil, err
		}
		f.rows = append(f.rows, row{Plan: ofSource(s, next), kind: "DataSource", namespace: s.Namespace, name: s.Name})
	}
	return by, nil
}

func (f *found) findCrons(ctx context.Context, c *kube.Client) error {
	crons, err := listAs[cdiv1.DataImportCron](ctx, c, "dataimportcrons")
	for i := range crons {
		f.rows = append(f.rows, row{Plan: ofCron(&crons[i]), kind: "DataImportCron", namespace: crons[i].Namespace, name: crons[i].Name})
	}
	return err
}

func (f *found) findVolumes(ctx context.Context, c *kube.Client, sources dataSources) error {
	volumes, err := listAs[cdiv1.DataVolume](ctx, c, "datavolumes")
	if err != nil {
		return err
	}
	claims, err := c.Core.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	by := map[types.NamespacedName]*corev1.PersistentVolumeClaim{}
	for i := range claims.Items {
		by[types.NamespacedName{Namespace: claims.Items[i].Namespace, Name: claims.Items[i].Name}] = &claims.Items[i]
	}
	owned := map[types.UID]bool{}
	for i := range volumes {
		v := &volumes[i]
		from, err := clonesource.Resolve(ctx, sources, v.Namespace, &v.Spec)
		if err != nil {
			return fmt.Errorf("follow the source of DataVolume %s/%s: %w", v.Namespace, v.Name, err)
		}
		claim := by[types.NamespacedName{Namespace: v.Namespace, Name: v.Name}]
		var prime *corev1.PersistentVolumeClaim
		if claim != nil {
			owned[claim.UID] = true
			prime = by[primeOf(claim)]
		}
		f.rows = append(f.rows, row{Plan: plan.Decide(ofVolume(v, from.Source, claim, prime)), kind: "DataVolume", namespace: v.Namespace, name: v.Name,
			claim: claim, prime: prime, uid: v.UID})
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		prime := by[primeOf(claim)]
		if facts, ordered := ofClaim(claim, prime); ordered && !owned[claim.UID] {
			f.rows = append(f.rows, row{Plan: plan.Decide(facts), kind: "PersistentVolumeClaim", namespace: claim.Namespace, name: claim.Name,
				claim: claim, prime: prime, uid: claim.UID})
		}
	}
	return nil
}

// primeOf returns the claim that is filled in the stead of another.
func primeOf(c *corev1.PersistentVolumeClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: "prime-" + string(c.UID)}
}
