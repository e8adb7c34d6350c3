package takeover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/restmapper"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/takeover/plan"
)

// mayChange asks for every right that will be needed before one is used.
func (t *takeoverRun) mayChange(ctx context.Context, f *found) error {
	type right struct{ verb, group, resource string }
	needed := []right{{"patch", "apps", "deployments"}, {"patch", "batch", "cronjobs"}, {"patch", "", "persistentvolumeclaims"}, {"delete", "", "pods"}}
	for _, o := range f.calls {
		needed = append(needed, right{"delete", o.resource.Group, o.resource.Resource})
	}
	for _, o := range f.others {
		needed = append(needed, right{"patch", o.resource.Group, o.resource.Resource})
	}
	if t.options.Manifest != nil {
		needed = append(needed, right{"patch", "rbac.authorization.k8s.io", "clusterroles"}, right{"escalate", "rbac.authorization.k8s.io", "clusterroles"},
			right{"patch", "apiextensions.k8s.io", "customresourcedefinitions"})
	}
	slices.SortFunc(needed, func(a, b right) int {
		return strings.Compare(a.group+a.resource+a.verb, b.group+b.resource+b.verb)
	})
	var lacks []string
	for _, r := range slices.Compact(needed) {
		answer, err := t.client.Core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorization.SelfSubjectAccessReview{
			Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{Verb: r.verb, Group: r.group, Resource: r.resource}},
		}, metav1.CreateOptions{})
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

// settle does what was decided about each volume. CDI does not run, and Berth not yet.
func (t *takeoverRun) settle(ctx context.Context, f *found) error {
	taken := f.with(plan.Taken)
	t.say("Taking %d volumes, claims, DataSources and crons", len(taken))
	for _, r := range taken {
		for _, a := range r.Do {
			if err := t.act(ctx, a, r); err != nil {
				return fmt.Errorf("%s: %w", r.title(), err)
			}
		}
	}
	return nil
}

func (t *takeoverRun) act(ctx context.Context, a plan.Action, r row) error {
	switch a {
	case plan.Record:
		return t.annotate(ctx, r.claim, map[string]string{names.PodPhase: string(corev1.PodSucceeded), names.PopulatedFor: r.name})
	case plan.Allow:
		if r.prime != nil {
			return t.annotate(ctx, r.prime, map[string]string{names.MayFill: string(r.claim.UID)})
		}
		if r.claim == nil {
			return nil
		}
		return t.annotate(ctx, r.claim, map[string]string{names.MayFill: string(r.uid)})
	case plan.Stop:
		return t.stopServers(ctx, r)
	}
	return fmt.Errorf("no such action %s", a)
}

// annotate writes on the claim that was read, and on no other of its name.
func (t *takeoverRun) annotate(ctx context.Context, c *corev1.PersistentVolumeClaim, with map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": c.UID, "annotations": with,
	}})
	if err == nil {
		_, err = t.client.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("record on the claim: %w", err)
	}
	return nil
}

// stopServers deletes the pods of CDI that wait for an upload into the claim, or into the one that is filled in its stead, and waits until they
// are gone.
func (t *takeoverRun) stopServers(ctx context.Context, r row) error {
	pods := t.client.Core.CoreV1().Pods(r.namespace)
	uses := func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			c := v.PersistentVolumeClaim
			return c != nil && r.claim != nil && (c.ClaimName == r.claim.Name || c.ClaimName == primeOf(r.claim).Name)
		})
	}
	return wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		all, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "cdi.kubevirt.io=cdi-upload-server"})
		if err != nil {
			return false, fmt.Errorf("list CDI's upload servers: %w", err)
		}
		gone := true
		for i := range all.Items {
			if p := &all.Items[i]; uses(p) {
				gone = false
				err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
				if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					return false, fmt.Errorf("stop pod %s: %w", p.Name, err)
				}
			}
		}
		return gone, nil
	})
}

// disconnect deletes what calls CDI, and takes away finalizers that no one else takes away.
func (t *takeoverRun) disconnect(ctx context.Context, f *found) error {
	t.say("Removing %d configurations of webhooks that call CDI", len(f.calls))
	for _, o := range f.calls {
		uid := o.GetUID()
		err := t.client.Dynamic.Resource(o.resource).Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete %s: %w", o.title(), err)
		}
	}
	if err := t.suspend(ctx, f.programs, true); err != nil {
		return err
	}
	for _, o := range f.others {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"finalizers": slices.DeleteFunc(slices.Clone(o.GetFinalizers()), onlyCDIs), "resourceVersion": o.GetResourceVersion(),
		}})
		if err == nil {
			_, err = t.client.Dynamic.Resource(o.resource).Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("take CDI's finalizers from %s: %w", o.title(), err)
		}
	}
	return nil
}

// install applies Berth's objects over what is there, as `kubectl apply --server-side --force-conflicts` does.
func (t *takeoverRun) install(ctx context.Context, _ *found) error {
	if t.options.Manifest == nil {
		t.say("CDI has stopped. Install Berth now: kubectl apply --server-side --force-conflicts -f berth-data.yaml, or helm install")
		return nil
	}
	objects, err := parse(t.options.Manifest)
	if err != nil {
		return err
	}
	t.say("Installing Berth (%d objects)", len(objects))
	for i := range objects {
		if err := t.apply(ctx, &objects[i]); err != nil {
			return err
		}
	}
	t.say("Berth is in the place of CDI. virtctl takeover --back is the way back; CDI's namespace can be deleted when nobody wants that any more.")
	return nil
}

func parse(manifest []byte) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		var o unstructured.Unstructured
		switch err := d.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// apply applies one object. Its kind may be one that came a moment ago and is not served yet.
func (t *takeoverRun) apply(ctx context.Context, o *unstructured.Unstructured) error {
	kind := o.GroupVersionKind()
	var last error
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		groups, err := restmapper.GetAPIGroupResources(t.client.Core.Discovery())
		if err != nil && len(groups) == 0 {
			return false, fmt.Errorf("ask the cluster for its kinds: %w", err)
		}
		mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			last = err
			return false, nil
		}
		if err != nil {
			return false, err
		}
		resource := t.client.Dynamic.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			_, err = resource.Namespace(o.GetNamespace()).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
		} else {
			_, err = resource.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), errors.Join(err, last))
	}
	return nil
}
