package render

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/golden"
)

// TestManifests: a machine is made again by its manifests, with the disks it had: templates stay templates, other claims become volumes of
// their own, and nothing of the cluster it was in is left.
func TestManifests(t *testing.T) {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "uid", ResourceVersion: "7",
		Labels: map[string]string{"tier": "front"}, Finalizers: []string{"kubevirt.io/x"},
		Annotations: map[string]string{"note": "kept", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}}
	vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "web-root"}, Spec: cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, PVC: &corev1.PersistentVolumeClaimSpec{}}}}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{
		{Name: "root", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "web-root"}}},
		{Name: "data", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "shared"}}}}}}
	size := resource.MustParse("1Gi")
	e := Export{Name: "out", Namespace: "team", UID: "e", CA: "PEM", Machine: vm, Disks: []Exported{
		{Name: "root", As: "web-root", Size: size, Content: task.Disk}, {Name: "data", As: "shared", Size: size, Content: task.Archive}}}
	all, err := e.manifests().Objects()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, o := range all {
		text, err := yaml.JSONToYAML(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(text))
	}
	golden.Equal(t, "testdata/export-manifests.yaml", out.Bytes())

	pod, err := e.Pod()
	if err != nil {
		t.Fatal(err)
	}
	var given task.Export
	if err := json.Unmarshal([]byte(pod.Annotations[AnnTask]), &given); err != nil || len(given.Manifests) != len(all) || given.HeaderSecret != "header-secret-out" ||
		pod.Annotations[AnnExportManifests] == "" {
		t.Errorf("the server gets %d manifests, %v", len(given.Manifests), err)
	}
	vm.Annotations["note"] = strings.Repeat("x", 200<<10)
	if pod, err = e.Pod(); err != nil || pod.Annotations[AnnExportManifests] != "" {
		t.Errorf("manifests that are too long are offered: %v", err)
	}
}
