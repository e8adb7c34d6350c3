package clonenode

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

// pods are the situations of a pod that wants the claim; the first is that there is none.
var pods = []func(homes []string) (Pod, bool){
	func([]string) (Pod, bool) { return Pod{}, false },
	func(homes []string) (Pod, bool) { return on(homes, 0) },
	func(homes []string) (Pod, bool) { return on(homes, len(homes)-1) },
	func([]string) (Pod, bool) { return Pod{Why: Never}, true },
	func([]string) (Pod, bool) { return Pod{Why: DiskElsewhere}, true },
	func([]string) (Pod, bool) { return Pod{Why: NoRoom}, true },
}

var podNames = []string{"nobody", "fits-first", "fits-last", "never", "disk-elsewhere", "no-room"}

// on returns a pod that fits on one of the nodes; without nodes there is no such pod.
func on(homes []string, i int) (Pod, bool) {
	if len(homes) == 0 {
		return Pod{Why: Never}, true
	}
	return Pod{Home: homes[i]}, true
}

// combination is Facts by number, as the axes need them.
type combination struct {
	Facts
	first, second int
}

func (c combination) facts() Facts {
	f := c.Facts
	for i, n := range []int{c.first, c.second} {
		if pod, there := pods[n](f.Homes); there {
			pod.Name = []string{"a", "b"}[i]
			f.Pods = append(f.Pods, pod)
		}
	}
	return f
}

var axes = []enumerate.Axis[combination]{
	enumerate.Flag("everywhere", "bound", func(c *combination) *bool { return &c.Bound }),
	{Count: 3, Set: func(c *combination, i int) string {
		c.Homes = []string{"n1", "n2"}[:i]
		return fmt.Sprintf("%d-nodes", i)
	}},
	{Count: 3, Set: func(c *combination, i int) string {
		c.Chosen = []string{"", "n1", "other"}[i]
		return []string{"unchosen", "chosen-n1", "chosen-other"}[i]
	}},
	enumerate.Flag("asks", "free", func(c *combination) *bool { return &c.Free }),
	{Count: len(podNames), Set: func(c *combination, i int) string { c.first = i; return "a-" + podNames[i] }},
	{Count: len(podNames), Set: func(c *combination, i int) string { c.second = i; return "b-" + podNames[i] }},
}

// TestDecisionTable compares the whole behaviour with a file that a person can read.
func TestDecisionTable(t *testing.T) {
	got := "# source nodes chosen asks pod-a pod-b -> beside, or why not; a|b is either, * is any.\n" +
		enumerate.Table(axes, func(c combination) string {
			p := Decide(c.facts())
			switch {
			case p.Why != "":
				return "not there: " + p.Why
			case p.Beside != "":
				return "beside, on " + p.Beside
			}
			return "anywhere"
		})
	golden.Equal(t, "testdata/decisions.txt", got)
}

// TestInvariants: a clone is placed only where its source can be used, and never against a pod that wants it.
func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(c combination) {
		f := c.facts()
		p := Decide(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if p.Beside != "" && p.Why != "" {
			fail("both a place and why there is none")
		}
		home := false
		for _, h := range f.Homes {
			home = home || h == p.Beside
		}
		if p.Beside != "" && !home {
			fail("placed where the source cannot be used")
		}
		for _, pod := range f.Pods {
			if pod.Home == "" && p.Beside != "" {
				fail("placed where a pod that wants it cannot run")
			}
		}
		if !f.Bound && p != (Place{}) {
			fail("a source that can be used everywhere binds nobody")
		}
	})
}

// TestRefuses: what keeps a pod from a node.
func TestRefuses(t *testing.T) {
	memory := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}
	}
	needs := func(text string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: memory(text)}}}}}
		if change != nil {
			change(p)
		}
		return p
	}
	volume := func(node string) corev1.PersistentVolume {
		return corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{
			Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}}}
	}
	ended := *needs("900Mi", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	taint := corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		taints []corev1.Taint
		others []corev1.Pod
		pod    *corev1.Pod
		disks  []corev1.PersistentVolume
		want   Refusal
	}{
		"an empty node":           {pod: needs("1Gi", nil), want: Fits},
		"too small":               {pod: needs("2Gi", nil), want: NoRoom},
		"beside others":           {others: []corev1.Pod{*needs("800Mi", nil)}, pod: needs("200Mi", nil), want: Fits},
		"beside too many others":  {others: []corev1.Pod{*needs("800Mi", nil)}, pod: needs("300Mi", nil), want: NoRoom},
		"beside one that ended":   {others: []corev1.Pod{ended}, pod: needs("300Mi", nil), want: Fits},
		"is on another node":      {pod: needs("1Mi", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), want: Never},
		"is on this node":         {pod: needs("1Mi", func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), want: Fits},
		"wants another node":      {pod: needs("1Mi", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n2"} }), want: Never},
		"is repelled":             {taints: []corev1.Taint{taint}, pod: needs("1Mi", nil), want: Never},
		"is not wanted much":      {taints: []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectPreferNoSchedule}}, pod: needs("1Mi", nil), want: Fits},
		"tolerates it":            {taints: []corev1.Taint{taint}, pod: needs("1Mi", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "x"}} }), want: Fits},
		"tolerates all":           {taints: []corev1.Taint{taint}, pod: needs("1Mi", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}} }), want: Fits},
		"has another disk here":   {pod: needs("1Mi", nil), disks: []corev1.PersistentVolume{volume("n1")}, want: Fits},
		"has another disk there":  {pod: needs("1Mi", nil), disks: []corev1.PersistentVolume{volume("n1"), volume("n2")}, want: DiskElsewhere},
		"has a disk that follows": {pod: needs("1Mi", nil), disks: []corev1.PersistentVolume{{}}, want: Fits},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "n1"}},
			Spec: corev1.NodeSpec{Taints: c.taints}, Status: corev1.NodeStatus{Allocatable: memory("1Gi")}}
		if got := Refuses(node, c.others, c.pod, c.disks); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
