package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/machinefields"
)

// specCheck is a check of an object that has an instance's spec at a path: it also refuses the fields that are not supported, and warns of
// those without effect.
type specCheck[T any] struct {
	check check[T]
	at    *field.Path
	self  string // a user whose objects are not checked: they were made of objects that are
}

// Handle implements admission.Handler. An object that is being deleted, and an update that changes nothing of the spec, are accepted:
// finalizers and labels of an object that was made before a rule can be changed.
func (s specCheck[T]) Handle(ctx context.Context, req admission.Request) admission.Response {
	if s.self != "" && req.UserInfo.Username == s.self {
		return admission.Allowed("")
	}
	var before, after unstructured.Unstructured
	for raw, into := range map[*[]byte]*unstructured.Unstructured{&req.OldObject.Raw: &before, &req.Object.Raw: &after} {
		if len(*raw) == 0 {
			continue
		}
		if err := json.Unmarshal(*raw, &into.Object); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the object: %w", err))
		}
	}
	if after.GetDeletionTimestamp() != nil || before.Object != nil && equality.Semantic.DeepEqual(before.Object["spec"], after.Object["spec"]) {
		return admission.Allowed("")
	}
	old, err := decode[T](req.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	is, err := decode[T](req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	found, err := s.check(ctx, old, is)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	spec, _, _ := unstructured.NestedMap(after.Object, strings.Split(s.at.String(), ".")...)
	warnings := found.fields(spec, s.at)
	return found.response().WithWarnings(warnings...)
}

// fields adds a cause for each field of an instance's spec that is not supported, and returns a warning for each without effect.
func (c *causes) fields(spec map[string]any, at *field.Path) []string {
	var warnings []string
	for _, f := range machinefields.Find(spec, at.String()) {
		if f.Effect == machinefields.NoEffect {
			warnings = append(warnings, f.Message())
			continue
		}
		c.invalid(field.NewPath(f.At), "%s", f.Message())
	}
	return warnings
}

// checkInstance checks an instance that a user makes without a machine.
func checkInstance(_ context.Context, _, after *kubevirt.VirtualMachineInstance) (causes, error) {
	var c causes
	if after != nil {
		checkDevices(&after.Spec, specPath, &c)
	}
	return c, nil
}

// checkDevices: each volume comes from one place, each drive is of one kind and has something in it, and no two devices are booted from
// in the same place. A CD drive may be empty.
func checkDevices(spec *kubevirt.VirtualMachineInstanceSpec, in *field.Path, c *causes) {
	names := map[string]bool{}
	for i, v := range spec.Volumes {
		names[v.Name] = true
		if n := set(v.VolumeSource); n != 1 {
			at := in.Child("volumes").Index(i)
			c.invalid(at, "%s must have exactly one source type set", at)
		}
	}
	for i, d := range spec.Domain.Devices.Disks {
		at := in.Child("domain", "devices", "disks").Index(i)
		switch {
		case d.Source != nil && names[d.Name]:
			c.invalid(at.Child("source"), "%s says what is in disk %s, and so does the volume of that name: remove one of them",
				at.Child("source"), d.Name)
		case d.Source == nil && !names[d.Name] && d.CDRom == nil:
			c.invalid(at.Child("Name"), "%s '%s' not found.", at.Child("Name"), d.Name)
		}
		if set(d.DiskDevice) > 1 {
			c.invalid(at, "%s can only have a single target type defined", at)
		}
	}
	checkBootOrder(spec.Domain.Devices, in.Child("domain", "devices"), c)
	for i, card := range spec.Domain.Devices.Interfaces {
		at := in.Child("domain", "devices", "interfaces").Index(i)
		if why := badMAC(card.MacAddress); why != "" {
			c.invalid(at.Child("macAddress"), "interface %s has %s.", at.Child("name"), why)
		}
	}
	checkCredentials(spec, in.Child("accessCredentials"), c)
	checkNetworkDisks(spec, in, c)
	checkCopies(spec, in, c)
}

// checkBootOrder: two devices cannot both be the first that is booted from.
func checkBootOrder(devices kubevirt.Devices, in *field.Path, c *causes) {
	taken := map[uint]bool{}
	check := func(order *uint, at *field.Path) {
		if order == nil {
			return
		}
		if taken[*order] {
			c.invalid(at, "Boot order for %s already set for a different device.", at)
		}
		taken[*order] = true
	}
	for i, d := range devices.Disks {
		check(d.BootOrder, in.Child("disks").Index(i).Child("bootOrder"))
	}
	for i, card := range devices.Interfaces {
		check(card.BootOrder, in.Child("interfaces").Index(i).Child("bootOrder"))
	}
}

// checkCredentials: keys come into the guest with a disk for cloud-init, which must be there.
func checkCredentials(spec *kubevirt.VirtualMachineInstanceSpec, in *field.Path, c *causes) {
	noCloud := slices.ContainsFunc(spec.Volumes, func(v kubevirt.Volume) bool { return v.CloudInitNoCloud != nil })
	configDrive := slices.ContainsFunc(spec.Volumes, func(v kubevirt.Volume) bool { return v.CloudInitConfigDrive != nil })
	for i, a := range spec.AccessCredentials {
		if a.ByCloudInit(true) && !noCloud {
			c.invalid(in.Index(i), "%s requires a noCloud volume to exist when the noCloud propagationMethod is in use.", in.Index(i))
		}
		if a.ByCloudInit(false) && !configDrive {
			c.invalid(in.Index(i), "%s requires a configDrive volume to exist when the configDrive propagationMethod is in use.", in.Index(i))
		}
	}
}

// badMAC returns what is wrong with the address of a network card. It may have colons, dashes or dots.
func badMAC(address string) string {
	const length = 6
	mac, err := net.ParseMAC(address)
	switch {
	case address == "":
	case err != nil:
		return fmt.Sprintf("malformed MAC address (%s)", address)
	case len(mac) > length:
		return fmt.Sprintf("too long MAC address (%s)", address)
	}
	return ""
}

// set counts the fields that are set. All fields are pointers; those of embedded structs count as fields of their own.
func set[T kubevirt.VolumeSource | kubevirt.DiskDevice](s T) int {
	n := 0
	v := reflect.ValueOf(s)
	for _, f := range reflect.VisibleFields(v.Type()) {
		if !f.Anonymous && !v.FieldByIndex(f.Index).IsNil() {
			n++
		}
	}
	return n
}
