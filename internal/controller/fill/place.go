package fill

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	resources "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	reach "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/index"
	"github.com/berth-vm/berth/internal/decide/volume"
	from "github.com/berth-vm/berth/internal/origin"
	"github.com/berth-vm/berth/internal/render"
)

// home is where a clone's source can be used; nil means everywhere, or that nobody says.
func (e *Engine) home(ctx context.Context, s *Seen) (*corev1.NodeSelector, error) {
	if c := s.origin.restored; c != nil && c.Spec.VolumeName != "" {
		return from.Home(ctx, e.objects, c)
	}
	at, ok := from.OfSource(s.order.Namespace, s.source)
	if !ok {
		return nil, nil
	}
	found, err := from.Find(ctx, e.objects, at)
	if err != nil || !found.There() {
		return nil, err
	}
	return found.Home(ctx, e.objects)
}

// observePlace finds out whether the driver can fill the claim where that is wanted: beside the source, and nowhere else.
func (e *Engine) observePlace(ctx context.Context, s *Seen) error {
	why, err := e.elsewhere(ctx, s)
	switch {
	case err != nil:
		return err
	case why != "":
		s.origin.is(volume.Misplaced, "%s", why)
	case s.origin.beside != "" && s.claim.Annotations[reach.AnnSelectedNode] != s.origin.beside:
		s.origin.fact = volume.Beside
	}
	return nil
}

// elsewhere says why the claim is wanted where its source cannot be used; nothing if it is not, or nobody knows yet. If it
// is wanted and the source's place will do, s.origin.beside is the node: left to itself the scheduler, who knows nothing of
// the source, would try others, and perhaps the same wrong one for ever.
func (e *Engine) elsewhere(ctx context.Context, s *Seen) (string, error) {
	var err error
	if s.origin.home, err = e.home(ctx, s); err != nil || s.origin.home == nil {
		return "", err
	}
	homes, err := e.nodesIn(ctx, s.origin.home)
	if err != nil {
		return "", err
	}
	there := "the source is on " + nodeNames(homes)
	if node := s.order.Annotations[reach.AnnSelectedNode]; s.order.Placed && node != "" {
		if !hasNode(homes, node) {
			return fmt.Sprintf("%s and the claim is wanted on %s", there, node), nil
		}
		return "", nil
	}
	var pods corev1.PodList
	users := client.MatchingFields{index.PodClaim: s.order.Name}
	if err := e.reader.List(ctx, &pods, client.InNamespace(s.order.Namespace), users); err != nil {
		return "", fmt.Errorf("list pods that use %s/%s: %w", s.order.Namespace, s.order.Name, err)
	}
	if s.claim == nil && !s.waits() && len(homes) == 1 {
		s.origin.beside = homes[0].Name
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !mounts(pod, s.order.Name) || pod.Labels[render.LabelApp] == render.App {
			continue
		}
		why := "cannot run"
		for k := range homes {
			if why, err = e.refuses(ctx, &homes[k], pod); err != nil {
				return "", err
			}
			if why == "" {
				s.origin.beside = homes[k].Name
				break
			}
		}
		if why != "" {
			return fmt.Sprintf("%s, where pod %s %s", there, pod.Name, why), nil
		}
	}
	return "", nil
}

// refuses says what keeps a pod from running on a node; nothing if it may. It looks at what is cheap to see and common; what
// only the scheduler knows, how pods are to be spread for one, is left to it.
func (e *Engine) refuses(ctx context.Context, node *corev1.Node, pod *corev1.Pod) (string, error) {
	const never = "cannot run"
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name {
		return never, nil
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !ok || err != nil {
		return never, nil
	}
	_, tainted := scheduling.FindMatchingUntoleratedTaint(log.FromContext(ctx), node.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }, false)
	if tainted {
		return never, nil
	}
	apart, err := e.disksElsewhere(ctx, node, pod)
	if err != nil || apart {
		return "cannot run, for another of its disks is elsewhere", err
	}
	var there corev1.PodList
	// Hundreds of pods are on a node and nothing is done to them here, so they are not copied out of the cache.
	if err := e.reader.List(ctx, &there, client.MatchingFields{index.PodNode: node.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list pods on %s: %w", node.Name, err)
	}
	free := node.Status.Allocatable.DeepCopy()
	for i := range there.Items {
		p := &there.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for name, used := range resources.PodRequests(p, resources.PodResourcesOptions{}) {
			left := free[name]
			left.Sub(used)
			free[name] = left
		}
	}
	for name, needed := range resources.PodRequests(pod, resources.PodResourcesOptions{}) {
		if left := free[name]; left.Cmp(needed) < 0 {
			return "finds no room", nil
		}
	}
	return "", nil
}

// disksElsewhere: the pod has another claim whose volume cannot be used on the node.
func (e *Engine) disksElsewhere(ctx context.Context, node *corev1.Node, pod *corev1.Pod) (bool, error) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, e.reader, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil || c == nil || c.Spec.VolumeName == "" {
			if err != nil {
				return false, err
			}
			continue
		}
		pv, err := cluster.Get[corev1.PersistentVolume](ctx, e.reader, "", c.Spec.VolumeName)
		if err != nil {
			return false, err
		}
		if pv != nil && reach.CheckNodeAffinity(pv, node.Labels) != nil {
			return true, nil
		}
	}
	return false, nil
}

// placeClaim has the claim made beside its source.
func (e *Engine) placeClaim(ctx context.Context, s *Seen) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(reach.AnnSelectedNode, "/", "~1")
	err := e.cluster.Patch(ctx, s.claim.DeepCopy(), cluster.Unchanged(s.claim),
		cluster.Operation{Op: "add", Path: path, Value: s.origin.beside})
	if apierrors.IsConflict(err) {
		return errStale // the scheduler was faster; it is asked again
	}
	return err
}

func (e *Engine) nodesIn(ctx context.Context, part *corev1.NodeSelector) ([]corev1.Node, error) {
	var all corev1.NodeList
	if err := e.reader.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	selector := nodeaffinity.NewLazyErrorNodeSelector(part)
	var in []corev1.Node
	for i := range all.Items {
		if ok, err := selector.Match(&all.Items[i]); ok && err == nil {
			in = append(in, all.Items[i])
		}
	}
	return in, nil
}

// mounts: a pod that has no node yet, and has not ended, has the claim among its volumes.
func mounts(pod *corev1.Pod, name string) bool {
	if pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
		return false
	}
	for _, v := range pod.Spec.Volumes {
		if p := v.PersistentVolumeClaim; p != nil && p.ClaimName == name {
			return true
		}
	}
	return false
}

func hasNode(nodes []corev1.Node, name string) bool {
	for i := range nodes {
		if nodes[i].Name == name {
			return true
		}
	}
	return false
}

func nodeNames(nodes []corev1.Node) string {
	if len(nodes) == 0 {
		return "no node that exists"
	}
	names := make([]string, 0, len(nodes))
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	return "node " + strings.Join(names, ", ")
}

// within narrows where a pod may run to a part of the cluster: each of the terms it had, and one of the part's.
func within(a *corev1.Affinity, part *corev1.NodeSelector) *corev1.Affinity {
	if part == nil {
		return a
	}
	a = a.DeepCopy()
	if a == nil {
		a = &corev1.Affinity{}
	}
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	had := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if had == nil {
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = part
		return a
	}
	var both []corev1.NodeSelectorTerm
	for _, x := range had.NodeSelectorTerms {
		for _, y := range part.NodeSelectorTerms {
			term := x.DeepCopy()
			term.MatchExpressions = append(term.MatchExpressions, y.MatchExpressions...)
			term.MatchFields = append(term.MatchFields, y.MatchFields...)
			both = append(both, *term)
		}
	}
	a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: both}
	return a
}
