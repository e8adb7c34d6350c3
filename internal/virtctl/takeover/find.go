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

// row is what becomes of one volume or claim.
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
	if err := f.findVolumes(ctx, c); err != nil {
		return nil, err
	}
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

// onlyCDIs says of a finalizer that nobody takes it away when CDI is not there.
func onlyCDIs(finalizer string) bool {
	return slices.Contains([]string{
		"operator.cdi.kubevirt.io", "cdi.kubevirt.io/dataVolumeFinalizer", "cdi.kubevirt.io/objectTransfer", "cdi.kubevirt.io/importImageStream",
	}, finalizer)
}

// isCalled says whether all that a configuration of webhooks calls is CDI's.
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

func (f *found) findVolumes(ctx context.Context, c *kube.Client) error {
	volumes, err := list(ctx, c, cdiv1.SchemeGroupVersion.WithResource("datavolumes"))
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
	var failed []error
	for _, o := range volumes {
		var v cdiv1.DataVolume
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &v); err != nil {
			failed = append(failed, fmt.Errorf("read DataVolume %s/%s: %w", o.GetNamespace(), o.GetName(), err))
			continue
		}
		claim := by[types.NamespacedName{Namespace: v.Namespace, Name: v.Name}]
		var prime *corev1.PersistentVolumeClaim
		if claim != nil {
			owned[claim.UID] = true
			prime = by[primeOf(claim)]
		}
		f.rows = append(f.rows, row{Plan: plan.Decide(ofVolume(&v, claim, prime)), kind: "DataVolume", namespace: v.Namespace, name: v.Name,
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
	slices.SortStableFunc(f.rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name)) })
	return errors.Join(failed...)
}

// primeOf is the claim that is filled in the stead of another.
func primeOf(c *corev1.PersistentVolumeClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: "prime-" + string(c.UID)}
}
