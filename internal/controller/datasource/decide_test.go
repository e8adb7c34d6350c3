package datasource

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func named(name string, source cdiv1.DataSourceSource) cdiv1.DataSource {
	return cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: cdiv1.DataSourceSpec{Source: source},
	}
}

func TestDecide(t *testing.T) {
	pvc := cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "images", Name: "golden"}}
	snapshot := cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: "images", Name: "golden"}}
	to := func(namespace, name string) cdiv1.DataSourceSource {
		return cdiv1.DataSourceSource{DataSource: &cdiv1.DataSourceRefSourceDataSource{Namespace: namespace, Name: name}}
	}
	other, further := named("b", pvc), named("b", to("ns", "c"))
	for name, row := range map[string]struct {
		facts  facts
		reason string
	}{
		"a claim":               {facts{self: named("a", pvc)}, "Ready"},
		"a snapshot":            {facts{self: named("a", snapshot)}, "Ready"},
		"through another":       {facts{self: named("a", to("ns", "b")), next: &other}, "Ready"},
		"a missing claim":       {facts{self: named("a", pvc), lacks: "it does not exist"}, "NotFound"},
		"a missing other":       {facts{self: named("a", to("ns", "b"))}, "NotFound"},
		"nothing":               {facts{self: named("a", cdiv1.DataSourceSource{})}, "NoSource"},
		"itself":                {facts{self: named("a", to("ns", "a"))}, "SelfReference"},
		"another namespace":     {facts{self: named("a", to("x", "b")), next: &other}, "CrossNamespaceReference"},
		"too far":               {facts{self: named("a", to("ns", "b")), next: &further}, "MaxReferenceDepthReached"},
		"a missing, far source": {facts{self: named("a", to("ns", "b")), next: &other, lacks: "it is still being filled"}, "NotFound"},
	} {
		v := decide(row.facts)
		if v.reason != row.reason {
			t.Errorf("%s: %s, want %s (%s)", name, v.reason, row.reason, v.message)
		}
		if (v.status == corev1.ConditionTrue) != (row.reason == "Ready") {
			t.Errorf("%s: Ready is %s", name, v.status)
		}
		if v.status == corev1.ConditionTrue && v.source.PVC == nil && v.source.Snapshot == nil {
			t.Errorf("%s: ready without a source in the status", name)
		}
	}
}

// TestInherited: a DataSource has the labels of what it stands for, but for what it says itself.
func TestInherited(t *testing.T) {
	const likes, prefers = "instancetype.kubevirt.io/default-instancetype", "instancetype.kubevirt.io/default-preference"
	pvc := cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "images", Name: "golden"}}
	self := func(labels map[string]string, ours string) cdiv1.DataSource {
		d := named("a", pvc)
		d.Labels, d.Annotations = labels, map[string]string{annLabels: ours}
		return d
	}
	next := named("b", pvc)
	next.Labels = map[string]string{likes: "nearer"}
	labels := map[string]string{likes: "u1.small", prefers: "fedora", "other": "x"}
	for name, row := range map[string]struct {
		facts facts
		want  map[string]string
	}{
		"bare":            {facts{self: self(nil, ""), labels: labels}, map[string]string{likes: "u1.small", prefers: "fedora"}},
		"its own":         {facts{self: self(map[string]string{likes: "mine"}, ""), labels: labels}, map[string]string{prefers: "fedora"}},
		"ours, changed":   {facts{self: self(map[string]string{likes: "old"}, likes), labels: labels}, map[string]string{likes: "u1.small", prefers: "fedora"}},
		"through another": {facts{self: self(nil, ""), next: &next, labels: labels}, map[string]string{likes: "nearer", prefers: "fedora"}},
		"nothing to say":  {facts{self: self(map[string]string{likes: "old"}, likes)}, map[string]string{}},
	} {
		row.facts.lacks = ""
		if got := decide(row.facts).labels; !maps.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}
