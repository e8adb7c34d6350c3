package web

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/web/view"
)

// BenchmarkDraw measures the cost of one change among a thousand machines with three disks each.
func BenchmarkDraw(b *testing.B) {
	o := &view.Objects{}
	o.PVs = map[string]*corev1.PersistentVolume{}
	for n := range 20 {
		o.Nodes = append(o.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%d", n)}})
	}
	for m := range 1000 {
		meta := metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("vm%d", m)}
		i := &kubevirt.VirtualMachineInstance{ObjectMeta: meta}
		i.Status.NodeName = fmt.Sprintf("node%d", m%20)
		for d := range 3 {
			name := fmt.Sprintf("%s-%d", meta.Name, d)
			own := metav1.ObjectMeta{Namespace: "team", Name: name}
			i.Spec.Volumes = append(i.Spec.Volumes, kubevirt.Volume{Name: "d", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: name}}})
			v := &cdiv1.DataVolume{ObjectMeta: own}
			v.Status.Phase = cdiv1.Succeeded
			c := &corev1.PersistentVolumeClaim{ObjectMeta: own}
			c.Spec.VolumeName = name
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
			pv.Spec.StorageClassName, pv.Spec.Capacity = "local", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Values: []string{i.Status.NodeName}}}}}}}
			o.Volumes, o.Claims, o.PVs[name] = append(o.Volumes, v), append(o.Claims, c), pv
		}
		vm := &kubevirt.VirtualMachine{ObjectMeta: meta}
		vm.Status.PrintableStatus = kubevirt.StatusRunning
		o.Machines, o.Instances = append(o.Machines, vm), append(o.Instances, i)
	}
	p := newRenderer()
	if _, err := drawn(p, o, question{view: "overview"}); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for n := range b.N {
		changed := o.Machines[0].DeepCopy()
		changed.Status.PrintableStatus = kubevirt.PrintableStatus(fmt.Sprint(n))
		o.Machines[0] = changed
		if _, err := drawn(p, o, question{view: "overview"}); err != nil {
			b.Fatal(err)
		}
	}
}
