package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// An instance is one run: its guest is started once. A launcher can be deleted, so both facts are recorded on the instance: that the
// guest may have started, before the launcher is told to go; and how it ended, before the launcher loses its finalizer. Both name the
// instance by its UID: an instance that is restored from a backup with its annotations has not run.
const (
	annStarted = "berth.dev/started" // the UID of the instance
	annEnded   = "berth.dev/ended"   // an ending, as JSON
)

// ending is how an instance's guest ended.
type ending struct {
	Instance types.UID          `json:"instance"`
	Node     string             `json:"node,omitempty"` // where it ran last
	Well     bool               `json:"well,omitempty"`
	Report   launcherapi.Report `json:"report"`
	// At is when it ended by itself; nil if its launcher was deleted or its node is gone: nothing has to be waited for then before
	// the next run.
	At *metav1.Time `json:"at,omitempty"`
}

// recordedEnd reads the record of how the guest ended; nil if it has not, or if nothing says so.
func recordedEnd(i *kubevirt.VirtualMachineInstance) *ending {
	var e ending
	if json.Unmarshal([]byte(i.Annotations[annEnded]), &e) != nil || e.Instance != i.UID {
		return nil
	}
	return &e
}

func recordedStart(i *kubevirt.VirtualMachineInstance) bool {
	return i.Annotations[annStarted] == string(i.UID)
}

// observePast finds out whether an instance without a launcher has had its guest.
func (r *Reconciler) observePast(ctx context.Context, s *run) error {
	if s.launcher != nil {
		return nil
	}
	if s.past = recordedEnd(s.instance); s.past != nil || !recordedStart(s.instance) {
		return nil
	}
	all, err := launcherpod.Of(ctx, cluster.Reads(r.live), s.instance) // the cache may only have the instance so far
	if err != nil {
		return err
	}
	if launcherpod.Present(all) != nil {
		return againWithPods(s.instance)
	}
	s.past = &ending{Instance: s.instance.UID, Report: launcherapi.Report{End: launcherapi.Crashed,
		Detail: "its launcher's pod is gone, and nothing says how its guest ended"}}
	return nil
}

func (s *run) pastFact() machine.Past {
	switch {
	case s.past == nil:
		return machine.NoPast
	case s.past.Well:
		return machine.PastWell
	}
	return machine.PastBadly
}

// lastWords is what is known about the end of the instance's guest.
func (s *run) lastWords() launcherapi.Report {
	switch {
	case s.launcher != nil:
		return launcherpod.LastWords(s.launcher)
	case s.past != nil:
		return s.past.Report
	}
	return launcherapi.Report{}
}

// endedAt is when the guest ended by itself; false if it did not.
func (s *run) endedAt() (time.Time, bool) {
	switch {
	case s.launcher != nil:
		return finishedAt(s.launcher), true
	case s.past != nil && s.past.At != nil:
		return s.past.At.Time, true
	}
	return time.Time{}, false
}

// recordStart writes on the instance that its guest may have started from now on.
func (r *Reconciler) recordStart(ctx context.Context, i *kubevirt.VirtualMachineInstance) error {
	if recordedStart(i) {
		return nil
	}
	return r.cluster.Annotate(ctx, i, annStarted, string(i.UID))
}

// neverRan asks the server, not the cache, whether the instance has had its guest: the pod that ran it may be gone from one cache before
// its end is in the other.
func (r *Reconciler) neverRan(ctx context.Context, i *kubevirt.VirtualMachineInstance) error {
	now, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.live, i.Namespace, i.Name)
	if err != nil {
		return err
	}
	if now == nil || now.UID != i.UID || recordedEnd(now) != nil || recordedStart(now) {
		return againWithPods(i)
	}
	return nil
}

// againWithPods has an instance looked at again whose pods and records the caches do not have yet as they are.
func againWithPods(i *kubevirt.VirtualMachineInstance) error {
	return apierrors.NewConflict(schema.GroupResource{Group: kubevirt.GroupVersion.Group, Resource: "virtualmachineinstances"}, i.Name,
		fmt.Errorf("what is known about its guest is out of date"))
}

// recordEnd writes on the instance how its guest ended, when the end of the launcher is certain. A launcher that the guest left, or did
// not come to, ends without a record, and so does one that was deleted before it was told to start a guest: the instance gets another.
func (r *Reconciler) recordEnd(ctx context.Context, p *corev1.Pod) error {
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != "VirtualMachineInstance" {
		return nil
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.live, p.Namespace, owner.Name)
	if err != nil || i == nil || i.UID != owner.UID || i.DeletionTimestamp != nil {
		return err
	}
	all, err := launcherpod.Of(ctx, cluster.Reads(r.reader), i)
	if err != nil {
		return err
	}
	if at := launcherpod.Present(all); at == nil || at.UID != p.UID {
		return nil
	}
	byItself := p.DeletionTimestamp == nil && launcherpod.Ended(p) != ""
	if !byItself && p.Annotations[render.AnnGo] != "yes" || recordedEnd(i) != nil {
		return nil
	}
	text, err := json.Marshal(endingOf(i, p))
	if err != nil {
		return fmt.Errorf("write how the guest ended: %w", err)
	}
	return r.cluster.Annotate(ctx, i, annEnded, string(text))
}

// endingOf is how the guest of a launcher ended that certainly has. One that was shut down because its pod was deleted has not ended
// well: nobody asked its machine to stop, so RerunOnFailure starts it again.
func endingOf(i *kubevirt.VirtualMachineInstance, p *corev1.Pod) ending {
	e := ending{Instance: i.UID, Node: p.Spec.NodeName, Report: launcherpod.LastWords(p)}
	if at := situation(p); at == machine.Done || at == machine.Broken {
		ended := metav1.NewTime(finishedAt(p))
		e.Well, e.At = at == machine.Done, &ended
		return e
	}
	e.Well = launcherpod.Ended(p) == corev1.PodSucceeded && e.Report.End == launcherapi.PoweredOff
	switch {
	case e.Well:
	case launcherpod.Ended(p) == "":
		e.Report.Detail = fmt.Sprintf("node %s is gone, and its guest with it", p.Spec.NodeName)
	default:
		e.Report.Detail = fmt.Sprintf("its launcher's pod %s was deleted: %s", p.Name, e.Report.Detail)
	}
	return e
}
