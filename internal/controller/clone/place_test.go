package clone

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/testing/filltest"
)

func node(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}, Spec: corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
	}
}

func only(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
	}}}}
}

// onNode returns a claim that is bound to a volume of a node.
func onNode(claim, node string) []client.Object {
	c := filltest.Bound(filltest.Team, claim)
	c.Spec.VolumeName = "pv-" + claim
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim}}
	pv.Spec.NodeAffinity, pv.Spec.ClaimRef = &corev1.VolumeNodeAffinity{Required: only(node)}, &corev1.ObjectReference{UID: c.UID}
	return []client.Object{c, pv}
}

// consumer returns a pod that wants claims and has no node yet.
func consumer(change func(*corev1.PodSpec), claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "vm"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func needs(memory string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)},
		}}}
	}
}

// TestElsewhere: a clone is made beside its source if the clone's user can run there, and otherwise the reason says who cannot.
func TestElsewhere(t *testing.T) {
	golden := onNode("golden", "node1")
	busy := consumer(needs("800Mi"))
	busy.Name, busy.Spec.NodeName, busy.Status.Phase = "busy", "node1", corev1.PodRunning
	for name, c := range map[string]struct {
		objects []client.Object
		why     string
		beside  string
	}{
		"nobody wants it":       {objects: []client.Object{node("node1"), node("node2")}},
		"can run there":         {objects: []client.Object{node("node1"), node("node2"), consumer(nil, "disk")}, beside: "node1"},
		"another claim's":       {objects: []client.Object{node("node1"), consumer(nil, "other")}},
		"has room":              {objects: []client.Object{node("node1"), busy, consumer(needs("200Mi"), "disk")}, beside: "node1"},
		"has no room":           {objects: []client.Object{node("node1"), busy, consumer(needs("300Mi"), "disk")}, why: "pod vm finds no room"},
		"is bound elsewhere":    {objects: append(onNode("second", "node2"), node("node1"), consumer(nil, "disk", "second")), why: "another of its disks"},
		"is bound there":        {objects: append(onNode("second", "node1"), node("node1"), consumer(nil, "disk", "second")), beside: "node1"},
		"the node is gone":      {objects: []client.Object{node("node2"), consumer(nil, "disk")}, why: "no node that exists"},
		"the node takes no pod": {objects: []client.Object{node("node1", corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoSchedule}), consumer(nil, "disk")}, why: "cannot run"},
		"may not run there": {objects: []client.Object{node("node1"), node("node2"), consumer(func(s *corev1.PodSpec) {
			s.NodeSelector = map[string]string{corev1.LabelHostname: "node2"}
		}, "disk")}, why: "the source is on node node1, where pod vm cannot run"},
	} {
		t.Run(name, func(t *testing.T) {
			w := filltest.New(t, filltest.Scene{Objects: append(c.objects, golden...)})
			cloner, s := looking(t, w.API, w)
			if err := cloner.Observe(t.Context(), s, Target{Class: filltest.Class(filltest.Waits)}); err != nil {
				t.Fatal(err)
			}
			if why := s.where.Why; (why == "") != (c.why == "") || !strings.Contains(why, c.why) || s.where.Beside != c.beside {
				t.Errorf("got %q and node %q, want %q and node %q", why, s.where.Beside, c.why, c.beside)
			}
		})
	}
}

// looking returns a look at a clone of the claim golden, in namespace Team.
func looking(t *testing.T, reader client.Reader, w *filltest.World) (*Cloner, *Seen) {
	t.Helper()
	c := New(Parts{Reader: reader, Live: w.API, Writer: w.Writer, Clock: w.Clock})
	spec := &cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: filltest.Team, Name: "golden"}}}
	s, err := c.Find(t.Context(), Order{Namespace: filltest.Team, Name: "disk", UID: "1", Spec: spec}, Target{})
	if err != nil {
		t.Fatal(err)
	}
	return c, &s
}
