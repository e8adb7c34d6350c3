package v1

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	upstream "kubevirt.io/api/core/v1"
)

// additions are fields that kubevirt.io does not have. Each is explained in docs/reference/additions.md.
var additions = []string{
	"vm.spec.volumeClaimTemplates",
	"vm.spec.template.spec.volumes.persistentVolumeClaim.name",
	"vm.spec.template.spec.volumes.iscsi",
	"vm.spec.template.spec.volumes.rbd",
	"vm.spec.template.spec.volumes.nbd",
	"vm.spec.template.spec.volumes.gluster",
	"vm.spec.template.spec.volumes.http",
	"vm.spec.template.spec.volumes.container",
	"vm.spec.template.spec.volumes.containerImage",
	"vm.spec.template.spec.volumes.accessMode",
	"vm.spec.template.spec.volumes.keepAs", "vm.spec.template.spec.volumes.copy", "vm.spec.template.spec.volumes.bootEarly",
	"vm.spec.template.spec.domain.devices.disks.source",
	"vm.spec.template.spec.domain.devices.disks.access-mode",
	"vm.spec.template.spec.domain.devices.disks.copy",
	"vm.spec.template.spec.volumes.persistentVolumeClaim.direct",
	"vm.spec.template.spec.volumes.dataVolume.direct",
	"vm.spec.template.spec.volumes.hotpluggable",
	"vm.status.volumeRequests.addVolumeOptions.accessMode",
	"vm.status.volumeRequests.addVolumeOptions.volumeSource.iscsi",
	"vm.status.volumeRequests.addVolumeOptions.volumeSource.rbd",
	"vm.status.volumeRequests.addVolumeOptions.volumeSource.nbd",
	"vm.status.volumeRequests.addVolumeOptions.volumeSource.gluster",
	"vm.status.volumeRequests.addVolumeOptions.volumeSource.http",
	"vmi.status.volumeStatus.copy",
	"vmim.status.sentBytes", "vmim.status.totalBytes",
}

// TestFieldsAreSpelledAsUpstreamSpellsThem walks our types beside kubevirt.io's: every JSON field of ours must be one of
// theirs and of the same shape, unless it is listed as an addition.
func TestFieldsAreSpelledAsUpstreamSpellsThem(t *testing.T) {
	seen := map[string]bool{}
	var walk func(path string, ours, theirs reflect.Type)
	walk = func(path string, ours, theirs reflect.Type) {
		ours, theirs = element(ours), element(theirs)
		if ours == theirs || ours.Kind() != reflect.Struct || seen[ours.String()+theirs.String()] {
			return
		}
		seen[ours.String()+theirs.String()] = true
		if !strings.HasSuffix(ours.PkgPath(), "api/kubevirt/v1") {
			return
		}
		known, mine := jsonFields(theirs), jsonFields(ours)
		for _, name := range slices.Sorted(maps.Keys(mine)) { // in order: a type is looked at where it comes first
			field := mine[name]
			at := path + "." + name
			other, ok := known[name]
			switch {
			case !ok && !slices.Contains(additions, at):
				t.Errorf("%s: kubevirt.io has no such field; spell it as they do or list it as an addition", at)
			case ok && kind(field) != kind(other):
				t.Errorf("%s is %v here and %v there", at, field, other)
			case ok:
				walk(at, field, other)
			}
		}
	}
	walk("vm", reflect.TypeFor[VirtualMachine](), reflect.TypeFor[upstream.VirtualMachine]())
	walk("vmi", reflect.TypeFor[VirtualMachineInstance](), reflect.TypeFor[upstream.VirtualMachineInstance]())
	walk("vmim", reflect.TypeFor[VirtualMachineInstanceMigration](), reflect.TypeFor[upstream.VirtualMachineInstanceMigration]())
	walk("kv", reflect.TypeFor[KubeVirt](), reflect.TypeFor[upstream.KubeVirt]())
}

// TestEveryFieldOfTheSpecIsThere: no field of a machine's spec in kubevirt.io is unknown to the API server. What is below a field that takes
// anything is not looked at.
func TestEveryFieldOfTheSpecIsThere(t *testing.T) {
	var walk func(path string, ours, theirs reflect.Type)
	walk = func(path string, ours, theirs reflect.Type) {
		ours, theirs = element(ours), element(theirs)
		if ours == theirs || ours.Kind() != reflect.Struct || !strings.HasSuffix(ours.PkgPath(), "api/kubevirt/v1") || ours.NumField() == 0 {
			return
		}
		mine := jsonFields(ours)
		for name, field := range jsonFields(theirs) {
			if found, ok := mine[name]; ok {
				walk(path+"."+name, found, field)
			} else {
				t.Errorf("kubevirt.io has %s.%s", path, name)
			}
		}
	}
	walk("spec", reflect.TypeFor[VirtualMachineSpec](), reflect.TypeFor[upstream.VirtualMachineSpec]())
}

func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

func kind(t reflect.Type) reflect.Kind {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Uint64 {
		return reflect.Int64 // one kind in JSON; server-side apply's own library knows no unsigned one, so ours have none
	}
	return t.Kind()
}

// jsonFields maps JSON names to types, with inlined structs flattened.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range fieldsOf(t) {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && (f.Anonymous || strings.Contains(rest, "inline")) {
			for k, v := range jsonFields(element(f.Type)) {
				out[k] = v
			}
			continue
		}
		if name != "" && name != "-" {
			out[name] = f.Type
		}
	}
	return out
}

func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}
