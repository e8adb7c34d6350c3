package library

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/instancetype"
)

// TestGenerated: the manifests are those of the tables.
func TestGenerated(t *testing.T) {
	want, err := Manifests()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		have, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(have, text) {
			t.Errorf("%s is not what the tables say (%v): run go generate ./config/library", name, err)
		}
	}
}

// TestEveryTypeCanRun: machines here can have what each instance type promises.
func TestEveryTypeCanRun(t *testing.T) {
	for _, o := range Instancetypes() {
		i := &kubevirt.VirtualMachineInstance{}
		if err := instancetype.Apply(i, &o.Spec, nil); err != nil {
			t.Errorf("%s: %v", o.Name, err)
		}
		if got := i.Spec.Domain.Memory.Guest; got == nil || got.Cmp(o.Spec.Memory.Guest) != 0 {
			t.Errorf("%s: the guest has %v", o.Name, got)
		}
	}
}

// TestEveryPreferenceCanBeUsed: each goes with an instance type, asks for no Secure Boot, which is refused, and is met by the instance type of the images
// where it is that of one.
func TestEveryPreferenceCanBeUsed(t *testing.T) {
	types := Instancetypes()
	of := func(name string) *instancetype.Type {
		for i := range types {
			if types[i].Name == name {
				return &types[i].Spec
			}
		}
		t.Fatalf("there is no instance type %s", name)
		return nil
	}
	var known []string
	for _, p := range ClusterPreferences() {
		known = append(known, p.Name)
		i := &kubevirt.VirtualMachineInstance{}
		if err := instancetype.Apply(i, of("u1.xlarge"), &p.Spec); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if f := i.Spec.Domain.Firmware; f != nil && f.Bootloader != nil && f.Bootloader.EFI != nil && (f.Bootloader.EFI.SecureBoot == nil || *f.Bootloader.EFI.SecureBoot) {
			t.Errorf("%s asks for Secure Boot", p.Name)
		}
	}
	for _, image := range Images {
		n := slices.Index(known, image.Preference)
		if n < 0 {
			t.Fatalf("image %s has preference %s, which is not there", image.Name, image.Preference)
		}
		if err := instancetype.Apply(&kubevirt.VirtualMachineInstance{}, of(ImageType), &ClusterPreferences()[n].Spec); err != nil {
			t.Errorf("image %s: %v", image.Name, err)
		}
		if _, err := resource.ParseQuantity(image.Size); err != nil {
			t.Errorf("image %s: %v", image.Name, err)
		}
	}
}
