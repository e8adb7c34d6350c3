package nodeselect

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/testing/filltest"
)

func node(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}, Spec: corev1.NodeSpec{Taints: taints},
	}
}

func only(name string) *corev1.NodeSelector { return filltest.On(name).Required }

// TestAway: a node that is gone, or that does not answer, is away; one without any status yet is not.
func TestAway(t *testing.T) {
	says := func(status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	}
	for name, c := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"gone": {nil, true}, "ready": {says(corev1.ConditionTrue), false}, "not ready": {says(corev1.ConditionFalse), true},
		"silent": {says(corev1.ConditionUnknown), true}, "new": {&corev1.Node{}, false},
	} {
		if got := Away(c.node); got != c.want {
			t.Errorf("%s: away %t, want %t", name, got, c.want)
		}
	}
}

// TestWithin: what an administrator says about workers still holds when the source says more.
func TestWithin(t *testing.T) {
	if Within(nil, nil) != nil {
		t.Error("nothing narrowed is something")
	}
	zone := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: only("zone")}}
	for _, a := range []*corev1.Affinity{nil, {}, zone} {
		got := Within(a, only("node1")).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		want := 1
		if a == zone {
			want = 2
		}
		if len(got) != 1 || len(got[0].MatchExpressions) != want {
			t.Errorf("%v narrowed to node1 is %v", a, got)
		}
	}
	if len(zone.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions) != 1 {
		t.Error("the administrator's own was changed")
	}
}

// TestTolerations: a worker follows its claim to a node that repels others, but not to one that is not well.
func TestTolerations(t *testing.T) {
	ours := corev1.Taint{Key: "vms", Value: "only", Effect: corev1.TaintEffectNoSchedule}
	ill := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{node("node1", ours, ill), node("node2")}})
	got, err := Tolerations(t.Context(), w.API, only("node1"))
	if err != nil || len(got) != 1 || !got[0].ToleratesTaint(logr.Discard(), &ours, false) || got[0].ToleratesTaint(logr.Discard(), &ill, false) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := Tolerations(t.Context(), w.API, nil); err != nil || got != nil {
		t.Errorf("of a claim that is nowhere yet: %v, %v", got, err)
	}
}
