package launcherpod

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
)

// there are the pods of a cluster.
type there []*corev1.Pod

func (a there) Read(_ context.Context, namespace, name string, into runtime.Object) (bool, error) {
	at := slices.IndexFunc(a, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if at >= 0 {
		a[at].DeepCopyInto(into.(*corev1.Pod))
	}
	return at >= 0, nil
}

func (a there) ReadAll(_ context.Context, namespace string, with map[string]string, into runtime.Object) error {
	list := into.(*corev1.PodList)
	for _, p := range a {
		if p.Namespace == namespace && labels.SelectorFromSet(with).Matches(labels.Set(p.Labels)) {
			list.Items = append(list.Items, *p)
		}
	}
	return nil
}

const (
	firstName = "virt-launcher-web-abcde"
	oneName   = "virt-launcher-web-abcde-11111111"
	twoName   = "virt-launcher-web-abcde-22222222"
	one       = types.UID("11111111-1111")
	two       = types.UID("22222222-2222")
)

func web() *kubevirt.VirtualMachineInstance {
	return &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "abcdefg"}}
}

type change func(*corev1.Pod)

// launcher is one of web's, that runs: of a migration if there is one.
func launcher(migration types.UID, changes ...change) *corev1.Pod {
	i := web()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: i.Namespace, Name: render.Machine{Instance: i, Incoming: migration}.PodName(render.Launcher),
		Labels:            map[string]string{render.LabelMachine: "virt-launcher", render.LabelCreatedBy: string(i.UID)},
		OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(i, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))},
		Annotations:       map[string]string{render.AnnMachine: fmt.Sprintf(`{"name":"web","incoming":%q}`, migration)},
		CreationTimestamp: metav1.NewTime(map[types.UID]time.Time{"": time.Unix(100, 0), one: time.Unix(200, 0), two: time.Unix(300, 0)}[migration]),
	}}
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Status.Phase, p.Status.ContainerStatuses = corev1.PodRunning, []corev1.ContainerStatus{{}}
	for _, c := range changes {
		c(p)
	}
	return p
}

// The phases of launchers.

func ready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func waits(p *corev1.Pod) { p.Status.Phase, p.Status.ContainerStatuses = corev1.PodPending, nil }

func granted(p *corev1.Pod) { p.Annotations[render.AnnGo] = "yes" }

func told(text string) change { return func(p *corev1.Pod) { p.Annotations[render.AnnMove] = text } }

func goes(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(400, 0)} }

// said: its container has ended with these words, and the kubelet has not said so of the pod.
func said(code int32, text string) change {
	return func(p *corev1.Pod) {
		p.Status.Conditions = nil
		p.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Message: text}
	}
}

func movedTo(name string) change { return said(0, fmt.Sprintf(`{"end":"Moved","to":%q}`, name)) }

func over(phase corev1.PodPhase) change { return func(p *corev1.Pod) { p.Status.Phase = phase } }

// What others may write.

func unowned(p *corev1.Pod) { p.OwnerReferences = nil }

func named(name string) change { return func(p *corev1.Pod) { p.Name = name } }

func elsewhere(p *corev1.Pod) { p.Namespace = "tenant" }

func ofBefore(p *corev1.Pod) { p.OwnerReferences[0].UID = "abcdexx" }

func unlabelled(p *corev1.Pod) { p.Labels = nil }

var (
	run  = told(`{"id":"11111111-1111","run":true}`)
	sent = told(`{"id":"11111111-1111","to":"10.0.0.1:8082","pod":"` + oneName + `"}`)
)

// moments are all situations of an instance's pods, in the order in which they come. There is one launcher that is present, which is also
// the one that can be asked, unless it cannot be.
var moments = []struct {
	name    string
	pods    there
	present string // empty: none
	mute    bool   // it cannot be asked
}{
	{"nothing is there", nil, "", true},
	{"it waits for a node", there{launcher("", waits)}, firstName, true},
	{"it starts", there{launcher("")}, firstName, false},
	{"it runs", there{launcher("", ready)}, firstName, false},

	{"the target waits for a node", there{launcher("", ready), launcher(one, waits)}, firstName, false},
	{"the target is placed", there{launcher("", ready), launcher(one)}, firstName, false},
	{"the target has the disks beside it", there{launcher("", ready), launcher(one, granted)}, firstName, false},
	{"the source sends", there{launcher("", ready, sent), launcher(one, granted)}, firstName, false},
	{"the source is not ready while it sends", there{launcher("", sent), launcher(one, granted)}, firstName, false},
	{"the target runs it, and the kubelet has not said that the source has ended", there{launcher("", ready, sent), launcher(one, granted, ready)}, oneName, false},
	{"the source's container has ended", there{launcher("", sent, movedTo(oneName)), launcher(one, granted)}, oneName, false},
	{"its pod too", there{launcher("", sent, movedTo(oneName), over(corev1.PodSucceeded)), launcher(one, granted)}, oneName, false},
	{"the target was told to run it", there{launcher("", sent, movedTo(oneName), over(corev1.PodSucceeded)), launcher(one, granted, run)}, oneName, false},
	{"the source goes", there{launcher("", sent, movedTo(oneName), over(corev1.PodSucceeded), goes), launcher(one, granted, run, ready)}, oneName, false},
	{"the source is gone before the target is ready", there{launcher(one, granted, run)}, oneName, false},
	{"it has moved", there{launcher(one, granted, run, ready)}, oneName, false},
	{"it has moved, and a probe of its own fails", there{launcher(one, granted, run)}, oneName, false},

	{"another target is placed", there{launcher(one, granted, run, ready), launcher(two, granted)}, oneName, false},
	{"the second source has ended", there{launcher(one, granted, run, movedTo(twoName)), launcher(two, granted)}, twoName, false},
	{"both sources are there still", there{launcher("", movedTo(oneName), over(corev1.PodSucceeded), goes),
		launcher(one, granted, run, movedTo(twoName), over(corev1.PodSucceeded)), launcher(two, granted)}, twoName, false},
	{"nothing of both moves is in writing", there{launcher("", movedTo(oneName)), launcher(one, granted, movedTo(twoName)), launcher(two, granted)}, twoName, false},
	{"it has moved twice", there{launcher(two, granted, run, ready)}, twoName, false},

	{"the target cannot", there{launcher("", ready, sent), launcher(one, granted, said(1, `{"end":"Failed"}`), over(corev1.PodFailed))}, firstName, false},
	{"the target goes again", there{launcher("", ready, sent), launcher(one, granted, goes)}, firstName, false},
	{"the source keeps it", there{launcher("", ready, told(`{"id":"11111111-1111","cancel":true}`)), launcher(one, granted)}, firstName, false},
	{"the source dies on the way", there{launcher("", sent, said(137, "")), launcher(one, granted)}, firstName, true},
	{"the source ends for good on the way", there{launcher("", sent, said(0, `{"end":"PoweredOff"}`)), launcher(one, granted)}, firstName, true},
	{"the source says that it went, and no such launcher is there", there{launcher("", sent, movedTo(oneName)), launcher(two, granted)}, firstName, true},
	{"it has ended where it came to", there{launcher("", movedTo(oneName), over(corev1.PodSucceeded)), launcher(one, granted, run, said(0, `{"end":"PoweredOff","came":true}`))}, oneName, true},
	{"it is stopped where it came to", there{launcher(one, granted, run, ready, goes)}, oneName, true},

	{"somebody's pod has the labels and the name of a target", there{launcher("", ready), launcher(one, run, ready, unowned)}, firstName, false},
	{"and the source has gone there, as it says", there{launcher("", movedTo(oneName)), launcher(one, run, ready, unowned)}, firstName, true},
	{"a target of an instance before", there{launcher("", ready), launcher(one, run, ready, ofBefore)}, firstName, false},
	{"a target that another migration names", there{launcher("", ready), launcher(one, run, ready, named(twoName))}, firstName, false},
	{"a target in another namespace", there{launcher("", ready), launcher(one, run, ready, elsewhere)}, firstName, false},
	{"a target that was never told", there{launcher("", ready), launcher(two)}, firstName, false},
	{"the first launcher in another namespace", there{launcher("", ready, elsewhere)}, "", true},
	{"somebody's pod has the name", there{launcher("", ready, unowned, unlabelled)}, "", true},
	{"somebody's pod has the name and the label, or it was orphaned", there{launcher("", ready, unowned)}, firstName, true},
	{"somebody took the name and the label after the move", there{launcher("", ready, unowned), launcher(one, run, ready)}, oneName, false},
	{"somebody took them, and says that it went on", there{launcher("", unowned, movedTo(twoName)), launcher(one, run, ready), launcher(two)}, oneName, false},
	{"somebody took the labels away", there{launcher("", ready, unlabelled)}, firstName, false},
}

// TestMoments: at every moment of a move there is one answer, whatever the instance's status says of the moments before and after.
func TestMoments(t *testing.T) {
	statuses := []kubevirt.VirtualMachineInstanceStatus{{}}
	for _, node := range []string{"", "node1", "node2"} {
		for _, at := range []*kubevirt.MigrationState{nil, {SourcePod: firstName}, {SourcePod: firstName, TargetPod: oneName},
			{SourcePod: firstName, TargetPod: oneName, Completed: true}, {SourcePod: firstName, TargetPod: oneName, Completed: true, Failed: true},
			{SourcePod: oneName, TargetPod: twoName}, {SourcePod: oneName, TargetPod: twoName, Completed: true}} {
			statuses = append(statuses, kubevirt.VirtualMachineInstanceStatus{NodeName: node, MigrationState: at})
		}
	}
	for _, m := range moments {
		for _, reversed := range []bool{false, true} {
			pods := slices.Clone(m.pods)
			if reversed {
				slices.Reverse(pods)
			}
			for _, status := range statuses {
				i := web()
				i.Status = status
				all, err := Of(t.Context(), pods, i)
				if err != nil {
					t.Fatal(err)
				}
				asked := m.present
				if m.mute {
					asked = ""
				}
				if at, guest := nameOf(Present(all)), nameOf(Guest(i, all)); at != m.present || guest != asked {
					t.Errorf("%s: it is in %q, and %q is asked, with status %+v", m.name, at, guest, status)
				}
			}
		}
	}
}

func nameOf(p *corev1.Pod) string {
	if p == nil {
		return ""
	}
	return p.Name
}

// TestUnread: what cannot be read is no answer.
func TestUnread(t *testing.T) {
	for _, from := range []Reader{broken{first: true}, broken{}} {
		if all, err := Of(t.Context(), from, web()); err == nil || all != nil {
			t.Errorf("%v, %v", all, err)
		}
	}
}

type broken struct{ first bool }

func (b broken) Read(context.Context, string, string, runtime.Object) (bool, error) {
	return false, fmt.Errorf("away: %w", context.DeadlineExceeded)
}

func (b broken) ReadAll(context.Context, string, map[string]string, runtime.Object) error {
	if b.first {
		return nil
	}
	return fmt.Errorf("away: %w", context.DeadlineExceeded)
}
