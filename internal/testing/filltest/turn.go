package filltest

import (
	"context"
	"encoding/json"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// Turn simulates one step of scheduler, binder and kubelet; it returns whether they did anything.
func (w *World) Turn() bool {
	var claims corev1.PersistentVolumeClaimList
	w.Must(w.API.List(context.Background(), &claims))
	var pods corev1.PodList
	w.Must(w.API.List(context.Background(), &pods))
	moved := false
	for i := range claims.Items {
		c := &claims.Items[i]
		moved = w.schedule(c, pods.Items) || w.bind(c) || moved
	}
	for i := range pods.Items {
		moved = w.letGo(&pods.Items[i]) || w.work(&pods.Items[i]) || moved
	}
	return moved || w.snap() || w.appear()
}

// letGo ends a pod that is being deleted, as the kubelet does, and lets what has ended go, as internal/controller/podend does.
func (w *World) letGo(p *corev1.Pod) bool {
	ctx, moved := context.Background(), false
	if p.DeletionTimestamp != nil && !podend.Over(p) && len(p.Finalizers) > 0 {
		p.Status.Phase = corev1.PodFailed
		w.Must(w.API.Status().Update(ctx, p))
		moved = true
	}
	if !podend.Over(p) || !slices.Contains(p.Finalizers, w.keeper.Finalizer) {
		return moved
	}
	_, err := w.keeper.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
	w.Must(err)
	return true
}

// appear has the next of what comes later.
func (w *World) appear() bool {
	if w.later == len(w.scene.Later) {
		return false
	}
	w.Must(w.API.Create(context.Background(), w.scene.Later[w.later].DeepCopyObject().(client.Object)))
	w.later++
	return true
}

// nodeOf returns the node of a pod: the one that it requires, if these tests set one.
func nodeOf(pod *corev1.Pod) string {
	if name := pod.Spec.NodeSelector[corev1.LabelHostname]; name != "" {
		return name
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, r := range append(term.MatchFields, term.MatchExpressions...) {
				return r.Values[0]
			}
		}
	}
	return Node
}

// claimsOf returns the claims of a pod.
func claimsOf(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// waits reports whether the class of a claim binds when a pod needs it.
func (w *World) waits(c *corev1.PersistentVolumeClaim) bool {
	class := Get[storagev1.StorageClass](w, "", *c.Spec.StorageClassName)
	return class != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// schedule chooses the node of a claim that a pod needs.
func (w *World) schedule(c *corev1.PersistentVolumeClaim, pods []corev1.Pod) bool {
	used, node := c.Namespace == Team && slices.Contains(w.scene.Consumed, c.Name), Node
	for i := range pods {
		if pods[i].Namespace == c.Namespace && len(pods[i].Spec.SchedulingGates) == 0 && slices.Contains(claimsOf(&pods[i]), c.Name) {
			used, node = true, nodeOf(&pods[i])
		}
	}
	if !used || !w.waits(c) || c.Spec.VolumeName != "" || c.Annotations[names.SelectedNode] != "" || c.Status.Phase == corev1.ClaimBound {
		return false
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[names.SelectedNode] = node
	w.Must(w.API.Update(context.Background(), c))
	return true
}

// bind provisions and binds as the control plane does: a claim with a data source that is not its driver's gets only a
// volume that names it, and one whose volume was given to another is lost.
func (w *World) bind(c *corev1.PersistentVolumeClaim) bool {
	ctx := context.Background()
	if c.Status.Phase == corev1.ClaimBound {
		pv := Get[corev1.PersistentVolume](w, "", c.Spec.VolumeName)
		if pv == nil || pv.Spec.ClaimRef.UID == c.UID {
			return false
		}
		c.Status.Phase = corev1.ClaimLost
		w.Must(w.API.Status().Update(ctx, c))
		return true
	}
	if c.Status.Phase == corev1.ClaimLost || c.DeletionTimestamp != nil {
		return false
	}
	name := w.reserved(c)
	if name == "" {
		node := c.Annotations[names.SelectedNode]
		if c.Spec.DataSourceRef != nil && !w.scene.Ignorant || w.waits(c) && node == "" || c.Spec.DataSource != nil && w.scene.Home != "" && node != w.scene.Home {
			return false
		}
		name = "pvc-" + string(c.UID) // as provisioners call it
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes,
		}}
		if Get[corev1.Node](w, "", node) != nil {
			pv.Spec.NodeAffinity = On(node)
		}
		_ = w.API.Delete(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}) // of an earlier claim
		w.Must(w.API.Create(ctx, pv))
	}
	c.Spec.VolumeName = name
	w.Must(w.API.Update(ctx, c))
	c.Status.Phase = corev1.ClaimBound
	w.Must(w.API.Status().Update(ctx, c))
	return true
}

// reserved returns the volume that names a claim.
func (w *World) reserved(c *corev1.PersistentVolumeClaim) string {
	var volumes corev1.PersistentVolumeList
	w.Must(w.API.List(context.Background(), &volumes))
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		switch ref := pv.Spec.ClaimRef; {
		case ref == nil:
		case ref.UID == c.UID:
			return pv.Name
		case ref.UID == "" && ref.Namespace == c.Namespace && ref.Name == c.Name: // by a user, before there was the claim
			ref.UID = c.UID
			w.Must(w.API.Update(context.Background(), pv))
			return pv.Name
		}
	}
	return ""
}

// serves reports whether a pod that serves never ends by itself, and neither does one that is not ours.
func serves(pod *corev1.Pod) bool { return slices.Contains(pod.Spec.Containers[0].Command, "serve") }

func (w *World) work(pod *corev1.Pod) bool {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return false
	case len(pod.Spec.SchedulingGates) > 0, !w.mountable(pod):
		return false
	case pod.Status.Phase != corev1.PodRunning:
		pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.0.0.1"
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	case serves(pod), pod.Labels[render.LabelApp] != render.App:
		return false
	case len(w.scene.Reports) == 0:
		w.T.Fatalf("worker %s was not expected", pod.Name)
	default:
		report := w.scene.Reports[min(w.Tries, len(w.scene.Reports)-1)]
		w.Tries++
		text, err := json.Marshal(report)
		w.Must(err)
		pod.Status.Phase = corev1.PodFailed
		if report.Outcome == task.Done {
			pod.Status.Phase = corev1.PodSucceeded
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(text), FinishedAt: metav1.NewTime(w.Clock.Now())},
		}}}
	}
	w.Must(w.API.Status().Update(context.Background(), pod))
	return true
}

// mountable reports whether the pod can start, for its claims are bound.
func (w *World) mountable(pod *corev1.Pod) bool {
	for _, name := range claimsOf(pod) {
		if c := Get[corev1.PersistentVolumeClaim](w, pod.Namespace, name); c == nil || c.Status.Phase != corev1.ClaimBound {
			return false
		}
	}
	return true
}

// snap makes snapshots ready.
func (w *World) snap() bool {
	all := &volumesnapshot.List{}
	w.Must(w.API.List(context.Background(), all))
	moved := false
	for i := range all.Items {
		s := &all.Items[i]
		if volumesnapshot.Ready(s) {
			continue
		}
		s.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr.To(true)}
		w.Must(w.API.Update(context.Background(), s))
		moved = true
	}
	return moved
}
