package livechange

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
)

// apart are the fields that are not compared as a whole: volumes and disks are compared one by one, and startStrategy is about the next start
// in any case.
var apart = []string{"volumes", "domain.devices.disks", "startStrategy"}

// restart returns the fields in which the template differs from the instance as the plan leaves it.
func (f Facts) restart(p Plan) []string {
	out := fields("", reflect.ValueOf(f.Want), reflect.ValueOf(f.Has))
	for _, name := range names(f.Want.Volumes, p.Volumes, volumeName) {
		want, has := volume(f.Want.Volumes, name), volume(p.Volumes, name)
		if f.volumeWaits(p, name, want, has) {
			out = append(out, "volumes["+name+"]")
		}
	}
	for _, name := range names(f.Want.Domain.Devices.Disks, p.Disks, diskName) {
		want, has := disk(f.Want.Domain.Devices.Disks, name), disk(p.Disks, name)
		addedAlone := volume(f.Want.Volumes, name) == nil && volume(p.Volumes, name) != nil && !slices.Contains(f.FromTemplate, name)
		if !equality.Semantic.DeepEqual(want, has) && !addedAlone && !slices.Contains(p.Waiting, name) {
			out = append(out, "domain.devices.disks["+name+"]")
		}
	}
	return out
}

// volumeWaits reports whether the guest gets the volume, or loses it, at the next start. A change to another claim has words of
// its own.
func (f Facts) volumeWaits(p Plan, name string, want, has *kubevirt.Volume) bool {
	switch {
	case slices.Contains(p.Waiting, name):
		return false
	case want == nil:
		return !has.CanBeRemoved() || slices.Contains(f.FromTemplate, name)
	case has == nil:
		return true
	case claimName(*want) != "" && claimName(*has) != "" && claimName(*want) != claimName(*has):
		return false
	}
	return !equality.Semantic.DeepEqual(want, has)
}

// fields compares two structs field by field, and those of the domain and its devices one by one.
func fields(path string, want, has reflect.Value) []string {
	var out []string
	for i := range want.NumField() {
		name, _, _ := strings.Cut(want.Type().Field(i).Tag.Get("json"), ",")
		name = path + name
		switch {
		case slices.Contains(apart, name):
		case name == "domain" || name == "domain.devices":
			out = append(out, fields(name+".", want.Field(i), has.Field(i))...)
		case !equality.Semantic.DeepEqual(want.Field(i).Interface(), has.Field(i).Interface()):
			out = append(out, name)
		}
	}
	return out
}

// names returns the names of both lists, each once.
func names[T any](a, b []T, name func(T) string) []string {
	var out []string
	for _, x := range slices.Concat(a, b) {
		if !slices.Contains(out, name(x)) {
			out = append(out, name(x))
		}
	}
	return out
}

func volumeName(v kubevirt.Volume) string { return v.Name }

func diskName(d kubevirt.Disk) string { return d.Name }

func claimName(v kubevirt.Volume) string {
	name, _ := render.ClaimOf(v)
	return name
}
