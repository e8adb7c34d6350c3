package machineclone

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	clonev1 "github.com/berth-vm/berth/api/clone/v1beta1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
)

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patches returns what the target has that differs from its source, as operations of a JSON patch: what a machine must not share
// with another (addresses, serial number, UUID), labels and annotations that were not chosen, and what the clone's owner wants
// besides.
func patches(was *snapshotv1.VirtualMachine, spec *clonev1.VirtualMachineCloneSpec) ([]string, error) {
	all := append(addresses(was, spec.NewMacAddresses), firmware(was, spec.NewSMBiosSerial)...)
	template := was.Spec.Template.ObjectMeta
	for _, part := range []struct {
		at      string
		has     map[string]string
		filters []clonev1.Filter
	}{
		{"/metadata/labels/", was.ObjectMeta.Labels, spec.LabelFilters},
		{"/metadata/annotations/", ownAnnotations(was.ObjectMeta.Annotations), spec.AnnotationFilters},
		{"/spec/template/metadata/labels/", template.Labels, spec.Template.LabelFilters},
		{"/spec/template/metadata/annotations/", template.Annotations, spec.Template.AnnotationFilters},
	} {
		dropped, err := unchosen(part.has, part.filters)
		if err != nil {
			return nil, err
		}
		for _, key := range dropped {
			all = append(all, operation{Op: "remove", Path: part.at + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)})
		}
	}
	out := make([]string, 0, len(all)+len(spec.Patches))
	for _, o := range all {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("write a patch: %w", err)
		}
		out = append(out, string(text))
	}
	return append(out, spec.Patches...), nil
}

// addresses gives every interface the new address that it is to have, or none: then it gets one from its machine's name.
func addresses(was *snapshotv1.VirtualMachine, fresh map[string]string) []operation {
	var out []operation
	for i, c := range was.Spec.Template.Spec.Domain.Devices.Interfaces {
		at := fmt.Sprintf("/spec/template/spec/domain/devices/interfaces/%d/macAddress", i)
		switch mac := fresh[c.Name]; {
		case mac != "":
			out = append(out, operation{Op: "add", Path: at, Value: mac})
		case c.MacAddress != "":
			out = append(out, operation{Op: "remove", Path: at})
		}
	}
	return out
}

// firmware takes from the target what identifies its source, and gives it the new serial number.
func firmware(was *snapshotv1.VirtualMachine, serial *string) []operation {
	const at = "/spec/template/spec/domain/firmware"
	has := was.Spec.Template.Spec.Domain.Firmware
	if has == nil {
		if serial == nil || *serial == "" {
			return nil
		}
		return []operation{{Op: "add", Path: at, Value: map[string]string{"serial": *serial}}}
	}
	var out []operation
	switch {
	case serial != nil && *serial != "":
		out = append(out, operation{Op: "add", Path: at + "/serial", Value: *serial})
	case has.Serial != "":
		out = append(out, operation{Op: "remove", Path: at + "/serial"})
	}
	if has.UUID != "" {
		out = append(out, operation{Op: "remove", Path: at + "/uuid"})
	}
	return out
}

// ownAnnotations returns those that a restore gives to the target at all: it leaves some out itself.
func ownAnnotations(has map[string]string) map[string]string {
	out := maps.Clone(has)
	maps.DeleteFunc(out, func(key, _ string) bool { return slices.Contains(leftOut, key) })
	return out
}

// unchosen returns the keys that no filter chooses, in their order. No filters choose all.
func unchosen(has map[string]string, filters []clonev1.Filter) ([]string, error) {
	if filters == nil {
		return nil, nil
	}
	var chosen, dropped []*regexp.Regexp
	for _, f := range filters {
		text, not := strings.CutPrefix(string(f), "!")
		if text == "*" {
			text = ".*"
		}
		pattern, err := regexp.Compile(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("filter %q: %w", f, err)
		case not:
			dropped = append(dropped, pattern)
		default:
			chosen = append(chosen, pattern)
		}
	}
	matches := func(list []*regexp.Regexp, key string) bool {
		return slices.ContainsFunc(list, func(p *regexp.Regexp) bool { return p.MatchString(key) })
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(has)) {
		if !matches(chosen, key) || matches(dropped, key) {
			out = append(out, key)
		}
	}
	return out, nil
}
