package admission

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/virtconfig"
	"github.com/berth-vm/berth/internal/decide/evacuation"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// PathEvict is the path of the webhook that decides whether a launcher may be evicted. Without an answer the PodDisruptionBudget
// of its instance refuses, and the drain tries again.
const PathEvict = "/evict/pods"

// evictor is the field manager of the annotation that records a request to evict a launcher.
const evictor = "berth-evict"

// evict answers a request to evict a pod. A guest that is to move instead gets a mark: that starts the drain.
func (m *movers) evict(ctx context.Context, req admission.Request) admission.Response {
	pod, i, all, err := m.launcher(ctx, req.Namespace, req.Name)
	if err != nil {
		return later(err.Error())
	}
	if i == nil {
		return admission.Allowed("") // it is not a launcher of ours
	}
	config, err := virtconfig.Read(ctx, m.reader, m.namespace)
	if err != nil {
		return later(err.Error())
	}
	is := condition(i, "LiveMigratable")
	answer := evacuation.Reply(evacuation.Asked{Strategy: virtconfig.Strategy(config.Eviction(i)), Guest: guestIn(pod, i, is),
		Here: launcherpod.Present(all) == pod})
	if answer.Mark && !dryRun(req) && pod.Annotations[render.AnnEvacuate] == "" {
		marks := cluster.Marks{Annotations: map[string]string{render.AnnEvacuate: time.Now().UTC().Format(time.RFC3339)}}
		if err := m.writer.MarkAs(ctx, evictor, pod, marks); err != nil {
			return later(err.Error())
		}
	}
	if answer.Refusal == "" {
		return admission.Allowed("")
	}
	return later(state.OfEvacuation(answer.Refusal).Text(i.Namespace+"/"+i.Name, is.Message))
}

// later returns the answer that makes a drain try again.
func later(why string) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: why,
	}}}
}

// launcher returns the pod of that name, the instance that it belongs to, and all launchers of that; without an instance the pod
// is not a launcher. Any user can write labels, so the owner reference decides.
func (m *movers) launcher(ctx context.Context, namespace, name string) (*corev1.Pod, *kubevirt.VirtualMachineInstance, []*corev1.Pod, error) {
	pod, err := cluster.Get[corev1.Pod](ctx, m.reader, namespace, name)
	if err != nil || pod == nil {
		return nil, nil, nil, err
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "VirtualMachineInstance" {
		return nil, nil, nil, nil
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, m.reader, namespace, owner.Name)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("find the instance of pod %s: %w", name, err)
	}
	if i == nil || i.UID != owner.UID {
		return nil, nil, nil, nil
	}
	all, err := launcherpod.Of(ctx, cluster.Reads(m.reader), i)
	at := slices.IndexFunc(all, func(p *corev1.Pod) bool { return p.Name == name })
	if err != nil || at < 0 {
		return nil, nil, nil, err
	}
	return all[at], i, all, nil
}

// guestIn returns the guest of a launcher, as its instance says.
func guestIn(pod *corev1.Pod, i *kubevirt.VirtualMachineInstance, movable kubevirt.Condition) evacuation.Guest {
	switch {
	case pods.Over(pod), pod.DeletionTimestamp != nil, i.DeletionTimestamp != nil,
		i.Status.Phase == kubevirt.PhaseSucceeded, i.Status.Phase == kubevirt.PhaseFailed:
		return evacuation.Ended
	case movable.Status == corev1.ConditionTrue:
		return evacuation.Movable
	case movable.Status == corev1.ConditionFalse:
		return evacuation.Fixed
	}
	return evacuation.Unready
}

// dryRun reports whether the request or the eviction itself asks that nothing be changed.
func dryRun(req admission.Request) bool {
	if req.DryRun != nil && *req.DryRun {
		return true
	}
	e, err := decode[policyv1.Eviction](req.Object.Raw)
	return err == nil && e != nil && e.DeleteOptions != nil && slices.Contains(e.DeleteOptions.DryRun, metav1.DryRunAll)
}
