// Package machine makes VirtualMachines come true: disks from templates, an instance while it is to run, one consumer
// for all its held claims, and the launcher that runs the guest. internal/decide/machine decides; this package
// observes, carries out and reports.
//
// It knows DataVolumes only by their published phases, so that another data side can fill them. What people ask of a
// machine (start, stop, restart, add and remove a volume) comes as requests in its status or as changes of its instance,
// in the form that api/kubevirt/v1/request.go lays down; this package takes each out when it is carried out.
package machine

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/reach"
	"github.com/berth-vm/berth/internal/state"
)

// Options are what the administrator decides about all machines.
type Options struct {
	Image string // the launcher's
	// Namespace is where the KubeVirt configuration is.
	Namespace string
	// Emulate allows guests on nodes without working KVM, slowly.
	Emulate bool
	// Reach are the rules for the servers of network disks.
	Reach reach.Rules
	// HostDirectories are the directories of nodes whose files any machine may have as hostDisk.
	HostDirectories []string
}

// KVM is what the node agent advertises where KVM works.
const KVM corev1.ResourceName = "devices.kubevirt.io/kvm"

func (o Options) kvm() corev1.ResourceName {
	if o.Emulate {
		return ""
	}
	return KVM
}

// Reconciler reconciles machines and instances.
type Reconciler struct {
	reader  client.Reader // cached
	live    client.Reader // the server itself, for what is asked once
	data    bool          // the cluster has the data side's kinds
	cluster *cluster.Writer
	clock   clock.PassiveClock
	options Options
	ask     asker
	records *diskaccess.Records
	keyed   keyed
	places  places
}

// say writes a status if it says something new, and an event if the reason is new and nothing else tells of it.
func (r *Reconciler) say(ctx context.Context, about, said client.Object, unchanged bool, row state.MachineRow, fresh bool) error {
	if unchanged {
		return nil
	}
	if err := r.cluster.ApplyStatus(ctx, said); err != nil {
		return err
	}
	if fresh && row.Message != "" && !row.Quiet {
		kind := corev1.EventTypeNormal
		if row.Warn {
			kind = corev1.EventTypeWarning
		}
		r.cluster.Turn(about, kind, string(row.Reason), row.Message)
	}
	return nil
}

// conditions keeps the times of what did not change: the transition is the status's, the probe is when the present reason
// was first seen, which is what people want to know of something that is waited for.
func (r *Reconciler) conditions(old []kubevirt.Condition, next ...kubevirt.Condition) []kubevirt.Condition {
	now := metav1.NewTime(r.clock.Now())
	for n := range next {
		c := &next[n]
		c.LastTransitionTime, c.LastProbeTime = now, &now
		i := slices.IndexFunc(old, func(o kubevirt.Condition) bool { return o.Type == c.Type && o.Status == c.Status })
		if i < 0 {
			continue
		}
		c.LastTransitionTime = old[i].LastTransitionTime
		if old[i].Reason == c.Reason && old[i].LastProbeTime != nil {
			c.LastProbeTime = old[i].LastProbeTime
		}
	}
	return next
}

func objectNamed(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

func reasonOf(conditions []kubevirt.Condition) string {
	for _, c := range conditions {
		if c.Type == "Ready" {
			return c.Reason
		}
	}
	return ""
}

func qos(p *corev1.Pod) *corev1.PodQOSClass {
	if p.Status.QOSClass == "" {
		return nil
	}
	return ptr.To(p.Status.QOSClass)
}
