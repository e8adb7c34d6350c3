package fill

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/render"
)

const (
	annSelectedNode = "volume.kubernetes.io/selected-node"
	// labelSnapshotNode is how the snapshot controller says on which node a snapshot of a node's own storage is.
	labelSnapshotNode = "snapshot.storage.kubernetes.io/managed-by"

	// placePatience is how long a consumer may look for room beside the source before its claim is streamed to where there
	// is room: a clone by the driver takes a moment there, so a short wait is worth it.
	placePatience = 30 * time.Second
)

// home is where a clone's source can be used; nil means everywhere, or that nobody says.
func (e *Engine) home(ctx context.Context, s *Seen) (*corev1.NodeSelector, error) {
	if s.source.Snapshot != nil {
		return e.snapshotHome(ctx, s)
	}
	c, err := get[corev1.PersistentVolumeClaim](ctx, e.reader, s.source.PVC.Namespace, s.source.PVC.Name)
	if err != nil || c == nil || c.Spec.VolumeName == "" {
		return nil, err
	}
	pv, err := get[corev1.PersistentVolume](ctx, e.reader, "", c.Spec.VolumeName)
	if err != nil || pv == nil || pv.Spec.NodeAffinity == nil {
		return nil, err
	}
	return pv.Spec.NodeAffinity.Required, nil
}

func (e *Engine) snapshotHome(ctx context.Context, s *Seen) (*corev1.NodeSelector, error) {
	snap, err := e.readSnapshot(ctx, s.source.Snapshot.Namespace, s.source.Snapshot.Name)
	if err != nil || snap == nil {
		return nil, err
	}
	name, _, _ := unstructured.NestedString(snap.Object, "status", "boundVolumeSnapshotContentName")
	content, err := e.readKind(ctx, "VolumeSnapshotContent", "", name)
	if err != nil || content == nil || content.GetLabels()[labelSnapshotNode] == "" {
		return nil, err
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
		Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{content.GetLabels()[labelSnapshotNode]},
	}}}}}, nil
}

// observePlace finds out whether the driver can fill the claim where that is wanted.
func (e *Engine) observePlace(ctx context.Context, s *Seen) error {
	var err error
	if s.origin.home, err = e.home(ctx, s); err != nil || s.origin.home == nil {
		return err
	}
	why, err := e.elsewhere(ctx, s)
	if err == nil && why != "" {
		s.origin.is(volume.Misplaced, "%s", why)
	}
	return err
}

// elsewhere says why the claim is wanted where its source cannot be used; nothing if it is not, or nobody knows yet.
func (e *Engine) elsewhere(ctx context.Context, s *Seen) (string, error) {
	homes, err := e.nodesIn(ctx, s.origin.home)
	if err != nil {
		return "", err
	}
	there := "the source is on " + nodeNames(homes)
	if node := s.order.Annotations[annSelectedNode]; s.order.Placed && node != "" {
		if !hasNode(homes, node) {
			return fmt.Sprintf("%s and the claim is wanted on %s", there, node), nil
		}
		return "", nil
	}
	var pods corev1.PodList
	if err := e.reader.List(ctx, &pods, client.InNamespace(s.order.Namespace)); err != nil {
		return "", fmt.Errorf("list pods of %s: %w", s.order.Namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !mounts(pod, s.order.Name) || pod.Labels[render.LabelApp] == render.App {
			continue
		}
		waited := s.now.Sub(pod.CreationTimestamp.Time)
		switch {
		case !canRun(pod, homes):
			return fmt.Sprintf("%s, where pod %s cannot run", there, pod.Name), nil
		case waited >= placePatience:
			return fmt.Sprintf("%s, where pod %s found no room within %s", there, pod.Name, placePatience), nil
		}
		s.origin.again = placePatience - waited
	}
	return "", nil
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

// canRun: the pod's own constraints leave one of the nodes.
func canRun(pod *corev1.Pod, nodes []corev1.Node) bool {
	if pod.Spec.NodeName != "" {
		return hasNode(nodes, pod.Spec.NodeName)
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	for i := range nodes {
		if ok, err := required.Match(&nodes[i]); ok && err == nil {
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
