package restore

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// own are the kinds of volumes that a machine has by itself: its disks of the backup, images that anyone can pull, and what is written in the
// machine. All others reach for something of the namespace, of the node or of a server.
var own = []string{"dataVolume", "containerDisk", "emptyDisk", "cloudInitNoCloud", "cloudInitConfigDrive", "downwardAPI"}

// others are the names of fields that lead to an object of the namespace or the node.
var others = regexp.MustCompile(`(?i)secret|configmap|serviceaccount|claim|hostdisk|hostdevice|gpus|resourceclaim|envfrom|sysprep|multus|nodename$|priorityclass`)

// reaches lists what of a machine leads to anything but its own disks.
func reaches(spec *kubevirt.VirtualMachineSpec, disks []restored) []string {
	found := map[string]bool{}
	for _, v := range spec.Template.Spec.Volumes {
		for _, kind := range kindsOf(v) {
			ours := v.DataVolume != nil && slices.ContainsFunc(disks, func(d restored) bool { return d.name == v.DataVolume.Name })
			if !slices.Contains(own, kind) || kind == "dataVolume" && !ours {
				found[fmt.Sprintf("volume %s is a %s", v.Name, kind)] = true
			}
		}
	}
	for _, d := range spec.Template.Spec.Domain.Devices.Disks {
		if d.Source != nil {
			found[fmt.Sprintf("disk %s has a source of its own", d.Name)] = true
		}
	}
	text, err := json.Marshal(spec.Template.Spec)
	var tree any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		return []string{err.Error()}
	}
	walk("spec.template.spec", tree, found)
	return slices.Sorted(maps.Keys(found))
}

// kindsOf returns the fields of a volume's source that are set.
func kindsOf(v kubevirt.Volume) []string {
	var out []string
	var look func(s reflect.Value)
	look = func(s reflect.Value) {
		for i := range s.NumField() {
			f := s.Type().Field(i)
			switch {
			case f.Anonymous:
				look(s.Field(i))
			case !s.Field(i).IsZero():
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				out = append(out, name)
			}
		}
	}
	look(reflect.ValueOf(v.VolumeSource))
	return out
}

// walk looks for fields that lead elsewhere.
func walk(at string, tree any, found map[string]bool) {
	switch t := tree.(type) {
	case map[string]any:
		for key, value := range t {
			here := at + "." + key
			if others.MatchString(key) && !empty(value) {
				found[here] = true
				continue
			}
			walk(here, value, found)
		}
	case []any:
		for i, value := range t {
			walk(fmt.Sprintf("%s[%d]", at, i), value, found)
		}
	}
}

func empty(v any) bool {
	switch t := v.(type) {
	case nil:
		return true
	case string:
		return t == ""
	case []any:
		return len(t) == 0
	case map[string]any:
		return len(t) == 0
	}
	return false
}
