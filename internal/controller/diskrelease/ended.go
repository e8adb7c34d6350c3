package diskrelease

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// recordEnd writes on the instance how its guest ended, when the end of the launcher is certain. A launcher that the guest left, or did
// not come to, ends without a record, and so does one that was deleted before it was told to start a guest: the instance gets another.
func (r *Reconciler) recordEnd(ctx context.Context, p *corev1.Pod) error {
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != "VirtualMachineInstance" {
		return nil
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.Read.Live, p.Namespace, owner.Name)
	if err != nil || i == nil || i.UID != owner.UID || i.DeletionTimestamp != nil {
		return err
	}
	all, err := launcherpod.Of(ctx, cluster.Reads(r.Read.Cached), i)
	if err != nil {
		return err
	}
	if at := launcherpod.Present(all); at == nil || at.UID != p.UID {
		return nil
	}
	byItself := p.DeletionTimestamp == nil && launcherpod.Ended(p) != ""
	if !byItself && p.Annotations[render.AnnGo] != "yes" || observed.RecordedEnd(i) != nil {
		return nil
	}
	text, err := json.Marshal(EndingOf(i, p))
	if err != nil {
		return fmt.Errorf("write how the guest ended: %w", err)
	}
	return r.Cluster.Annotate(ctx, i, observed.AnnEnded, string(text))
}

// EndingOf returns how the guest of an ended launcher ended. A guest that was shut down because its pod was deleted has not ended
// well: its machine was not asked to stop, so RerunOnFailure starts it again.
func EndingOf(i *kubevirt.VirtualMachineInstance, p *corev1.Pod) observed.Ending {
	e := observed.Ending{Instance: i.UID, Node: p.Spec.NodeName, Report: launcherpod.LastWords(p)}
	if at := observed.Situation(p); at == machine.Done || at == machine.Broken {
		ended := metav1.NewTime(observed.FinishedAt(p))
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
