package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// TestUp: a guest that was started runs, even if a node that has much to do answers a probe too late.
func TestUp(t *testing.T) {
	for name, c := range map[string]struct {
		probed, started, ready bool
		want                   machine.Pod
	}{
		"not yet":                     {probed: true, want: machine.Placed},
		"started":                     {probed: true, started: true, ready: true, want: machine.Up},
		"a probe came back too late":  {probed: true, started: true, want: machine.Up},
		"of an earlier version":       {started: true, ready: true, want: machine.Up},
		"of an earlier version, busy": {started: true, want: machine.Placed}, // without a probe of its start a container is started before its guest
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{}}}}
		if c.probed {
			p.Spec.Containers[0].StartupProbe = &corev1.Probe{}
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Started: &c.started}}
		if c.ready {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		if got := observed.Situation(p); got != c.want {
			t.Errorf("%s: %v instead of %v", name, got, c.want)
		}
	}
}

// TestConsumerIsBeingBound: a consumer that no node would have is not given up when the scheduler has a node for it after all.
func TestConsumerIsBeingBound(t *testing.T) {
	p := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available"}}}}
	if at := observed.ConsumerSituation(p); at != machine.Unplaceable {
		t.Errorf("no node will have it: %s", at)
	}
	p.Status.NominatedNodeName = "node1"
	if at := observed.ConsumerSituation(p); at != machine.Waiting {
		t.Errorf("a node was chosen for it: %s", at)
	}
	p.Spec.NodeName = "node1"
	if at := observed.ConsumerSituation(p); at != machine.Placed {
		t.Errorf("it has a node: %s", at)
	}
	if at := observed.ConsumerSituation(nil); at != machine.NoPod {
		t.Errorf("there is none: %s", at)
	}
}
