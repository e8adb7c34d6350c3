// Package launcherpod finds the launcher that a VirtualMachineInstance's guest is in. The machine controller, which publishes the
// result in the instance's status, and all programs that have to reach the guest use it.
//
// An instance has one launcher, and a second one while its guest moves. The second becomes the instance's launcher when the first
// has reported that its guest has left, which is recorded on the second before the first may go. So the pods are read, not the
// status: that is written after them, in several writes.
//
// Any user can write labels and names: a launcher is owned by its instance and has the name that the instance gives it.
package launcherpod

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
)

// Reader is a cluster to the caller where a guest is.
type Reader interface {
	// Read reads one object; false means that there is none.
	Read(ctx context.Context, namespace, name string, into runtime.Object) (bool, error)
	// ReadAll reads the objects of a namespace that have the labels.
	ReadAll(ctx context.Context, namespace string, labels map[string]string, into runtime.Object) error
}

// Of returns the launchers of an instance: that which starts its guest, and those that the guest came to, or is to come to.
func Of(ctx context.Context, from Reader, i *kubevirt.VirtualMachineInstance) ([]*corev1.Pod, error) {
	all, err := Targets(ctx, from, i)
	if err != nil {
		return nil, err
	}
	var first corev1.Pod
	found, err := from.Read(ctx, i.Namespace, render.Machine{Instance: i}.PodName(render.Launcher), &first)
	if err != nil {
		return nil, fmt.Errorf("read the launcher of %s/%s: %w", i.Namespace, i.Name, err)
	}
	// One that was the instance's and was orphaned still has its disks, so it counts. Guest does not return it.
	if found && (owned(&first, i) || first.Labels[render.LabelCreatedBy] == string(i.UID)) {
		all = append(all, &first)
	}
	return all, nil
}

// Targets returns the launchers of an instance that its guest came to, or is to come to: each has the name that the migration in
// its orders gives it.
func Targets(ctx context.Context, from Reader, i *kubevirt.VirtualMachineInstance) ([]*corev1.Pod, error) {
	var list corev1.PodList
	err := from.ReadAll(ctx, i.Namespace, map[string]string{render.LabelMachine: "virt-launcher", render.LabelCreatedBy: string(i.UID)}, &list)
	if err != nil {
		return nil, fmt.Errorf("list the launchers of %s/%s: %w", i.Namespace, i.Name, err)
	}
	var out []*corev1.Pod
	for n := range list.Items {
		p := &list.Items[n]
		if m := Incoming(p); m != "" && owned(p, i) && p.Name == TargetName(i, m) {
			out = append(out, p)
		}
	}
	return out, nil
}

func owned(p *corev1.Pod, i *kubevirt.VirtualMachineInstance) bool {
	ref := metav1.GetControllerOf(p)
	return ref != nil && i.UID != "" && ref.UID == i.UID
}

// TargetName returns the name of the launcher that a migration brings the guest to.
func TargetName(i *kubevirt.VirtualMachineInstance, migration types.UID) string {
	return render.Machine{Instance: i, Incoming: migration}.PodName(render.Launcher)
}

// Guest returns the launcher that an instance's guest runs in, and that can be asked; nil: there is none at the moment.
func Guest(i *kubevirt.VirtualMachineInstance, all []*corev1.Pod) *corev1.Pod {
	p := Present(all)
	if p == nil || !owned(p, i) || p.Status.Phase != corev1.PodRunning || Ended(p) != "" || p.DeletionTimestamp != nil {
		return nil
	}
	return p
}

// Present returns which of an instance's launchers has the guest or is to start it; nil: there is none.
func Present(all []*corev1.Pod) *corev1.Pod {
	var at *corev1.Pod
	for _, p := range all {
		if Incoming(p) != "" && !Came(p) {
			continue
		}
		if at == nil || later(p, at) {
			at = p
		}
	}
	for range all { // a guest moves from one to the next
		next := Successor(at, all)
		if next == nil {
			break
		}
		at = next
	}
	return at
}

// later reports whether a guest moves to a launcher that is made for it, so the youngest has it.
func later(a, b *corev1.Pod) bool {
	if (Incoming(a) == "") != (Incoming(b) == "") {
		return Incoming(a) != ""
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) > 0
}

// Successor returns the launcher that the guest of one that has ended moved to; nil: it did not, or it is not there.
func Successor(p *corev1.Pod, all []*corev1.Pod) *corev1.Pod {
	if p == nil || Ended(p) == "" {
		return nil
	}
	words := LastWords(p)
	at := slices.IndexFunc(all, func(q *corev1.Pod) bool { return q != p && q.Name == words.To && Incoming(q) != "" })
	if words.End != launcherapi.Moved || at < 0 {
		return nil
	}
	return all[at]
}

// Came reports whether a guest runs, or ran, in a launcher that it moved to. A target runs its guest only when its source has
// handed it over.
func Came(p *corev1.Pod) bool {
	if Orders(p).Run {
		return true
	}
	if Ended(p) != "" {
		return LastWords(p).Came
	}
	return Incoming(p) != "" && Up(p)
}
