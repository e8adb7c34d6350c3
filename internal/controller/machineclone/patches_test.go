package machineclone

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clonev1 "github.com/berth-vm/berth/api/clone/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
)

// TestPatches: a clone shares no address, serial number or UUID with its source, and has the labels and annotations that were chosen.
func TestPatches(t *testing.T) {
	was := &snapshotv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web",
		Labels:      map[string]string{"app": "web", "some/key": "x", "some/other~": "y"},
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "n"}}}
	was.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"tier": "a", "zone": "b"}}}
	was.Spec.Template.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "first", MacAddress: "02:00:00:00:00:01"}, {Name: "second"}, {Name: "third"}}
	bare := was.DeepCopy()
	was.Spec.Template.Spec.Domain.Firmware = &kubevirt.Firmware{Serial: "s1", UUID: "u1"}
	const mac = "/spec/template/spec/domain/devices/interfaces/"
	const drops = `{"op":"remove","path":"` + mac + `0/macAddress"}`
	const uuid = `{"op":"remove","path":"/spec/template/spec/domain/firmware/uuid"}`
	const serial = `{"op":"remove","path":"/spec/template/spec/domain/firmware/serial"}`
	for name, row := range map[string]struct {
		was  *snapshotv1.VirtualMachine
		spec clonev1.VirtualMachineCloneSpec
		want []string
	}{
		"nothing said": {was, clonev1.VirtualMachineCloneSpec{}, []string{drops, serial, uuid}},
		"no firmware":  {bare, clonev1.VirtualMachineCloneSpec{NewSMBiosSerial: ptr.To("s2")}, []string{drops, `{"op":"add","path":"/spec/template/spec/domain/firmware","value":{"serial":"s2"}}`}},
		"new ones": {was, clonev1.VirtualMachineCloneSpec{NewSMBiosSerial: ptr.To("s2"), NewMacAddresses: map[string]string{"first": "02:00:00:00:00:02", "third": "02:00:00:00:00:03"}}, []string{
			`{"op":"add","path":"` + mac + `0/macAddress","value":"02:00:00:00:00:02"}`, `{"op":"add","path":"` + mac + `2/macAddress","value":"02:00:00:00:00:03"}`,
			`{"op":"add","path":"/spec/template/spec/domain/firmware/serial","value":"s2"}`, uuid}},
		"all labels but some": {was, clonev1.VirtualMachineCloneSpec{LabelFilters: []clonev1.Filter{"*", "!some/*"}}, []string{drops, serial, uuid,
			`{"op":"remove","path":"/metadata/labels/some~1key"}`, `{"op":"remove","path":"/metadata/labels/some~1other~0"}`}},
		"some annotations": {was, clonev1.VirtualMachineCloneSpec{AnnotationFilters: []clonev1.Filter{"other"}}, []string{drops, serial, uuid, `{"op":"remove","path":"/metadata/annotations/note"}`}},
		"the template": {was, clonev1.VirtualMachineCloneSpec{Template: clonev1.TemplateFilters{LabelFilters: []clonev1.Filter{"tier"}}}, []string{drops, serial, uuid,
			`{"op":"remove","path":"/spec/template/metadata/labels/zone"}`}},
		"and patches": {was, clonev1.VirtualMachineCloneSpec{Patches: []string{`{"op":"x"}`}}, []string{drops, serial, uuid, `{"op":"x"}`}},
	} {
		got, err := patches(row.was, &row.spec)
		if diff := cmp.Diff(row.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	if _, err := patches(was, &clonev1.VirtualMachineCloneSpec{LabelFilters: []clonev1.Filter{"a("}}); err == nil || !strings.Contains(err.Error(), `filter "a("`) {
		t.Errorf("a filter that is none: %v", err)
	}
}
