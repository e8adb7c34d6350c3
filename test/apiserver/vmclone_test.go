//go:build apiserver

package apiserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TestCloneKind: the API server takes the clones that KubeVirt's documentation has, in both versions, and refuses those that cannot be in upstream's
// words, whether or not a controller runs. A clone names no namespace: it cannot leave its own.
func TestCloneKind(t *testing.T) {
	t.Parallel()
	must(t, admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "clones"}}))
	const whole = `
apiVersion: clone.kubevirt.io/v1alpha1
kind: VirtualMachineClone
metadata: {name: testclone, namespace: clones}
spec:
  source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm-cirros}
  target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm-clone-target}
  labelFilters: ["*", "!someKey/*"]
  annotationFilters: ["anotherKey/*"]
  template: {labelFilters: ["*"], annotationFilters: ["!firstKey/*"]}
  newMacAddresses: {interfaceName: "00-11-22"}
  newSMBiosSerial: new-serial
  patches: ['{"op": "add", "path": "/spec/template/metadata/labels/example", "value": "new-label"}']
`
	for name, row := range map[string]struct{ from, to, want string }{
		"whole":               {"", "", ""},
		"beta":                {"v1alpha1", "v1beta1", ""},
		"no target":           {"  target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm-clone-target}\n", "", ""},
		"of a snapshot":       {"{apiGroup: kubevirt.io, kind: VirtualMachine, name: vm-cirros}", "{apiGroup: snapshot.kubevirt.io, kind: VirtualMachineSnapshot, name: s}", ""},
		"another source":      {"kind: VirtualMachine, name: vm-cirros", "kind: Pod, name: p", "Source kind is not supported"},
		"a source of another": {"{apiGroup: kubevirt.io, kind: VirtualMachine, name: vm-cirros}", "{apiGroup: kubevirt.io, kind: VirtualMachineSnapshot, name: s}", "Source kind is not supported"},
		"no source's name":    {"name: vm-cirros", `name: ""`, "Source's name cannot be empty"},
		"another target":      {"kind: VirtualMachine, name: vm-clone-target", "kind: Pod, name: p", "Target kind is not supported"},
		"itself":              {"vm-clone-target", "vm-cirros", "Target name cannot be equal to source name when both are VirtualMachines"},
		"a ! inside":          {`"!someKey/*"`, `"some!Key"`, "labelFilters"},
		"a * inside":          {`"!someKey/*"`, `"some*Key"`, "labelFilters"},
		"another namespace":   {"name: vm-cirros}", "name: vm-cirros, namespace: other}", "unknown field"},
	} {
		u := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(strings.Replace(whole, row.from, row.to, 1)), u))
		err := admin.Create(t.Context(), u, client.DryRunAll, client.FieldValidation("Strict"))
		if got := err; row.want == "" && got != nil || row.want != "" && (got == nil || !strings.Contains(got.Error(), row.want)) {
			t.Errorf("%s: %v", name, got)
		}
	}
	u := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(whole), u))
	must(t, admin.Create(t.Context(), u))
	must(t, unstructured.SetNestedField(u.Object, "other", "spec", "source", "name"))
	if err := admin.Update(t.Context(), u); err == nil || !strings.Contains(err.Error(), "VirtualMachineClone spec is immutable") {
		t.Errorf("a changed clone: %v", err)
	}
}
