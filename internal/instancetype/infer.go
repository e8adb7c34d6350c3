package instancetype

import (
	"strings"

	"kubevirt.io/api/instancetype"
)

// Ref names an instance type or a preference. Its kind is never empty.
type Ref struct {
	Kind string
	Name string
}

// The kinds of instance types and preferences.
const (
	KindType              = "VirtualMachineInstancetype"
	KindClusterType       = "VirtualMachineClusterInstancetype"
	KindPreference        = "VirtualMachinePreference"
	KindClusterPreference = "VirtualMachineClusterPreference"
)

// KindOf returns which of the kinds is meant: machines may write it in any case, and as a plural. One that is none of them is returned as it is.
func KindOf(written string, kinds []string) string {
	for _, k := range kinds {
		if lower := strings.ToLower(written); lower == strings.ToLower(k) || lower == strings.ToLower(k)+"s" {
			return k
		}
	}
	return written
}

// InferType returns the instance type that the labels of a volume or of its source name.
func InferType(labels map[string]string) (Ref, bool) {
	return infer(labels, instancetype.DefaultInstancetypeLabel, instancetype.DefaultInstancetypeKindLabel, KindClusterType)
}

// InferPreference returns the preference that the labels of a volume or of its source name.
func InferPreference(labels map[string]string) (Ref, bool) {
	return infer(labels, instancetype.DefaultPreferenceLabel, instancetype.DefaultPreferenceKindLabel, KindClusterPreference)
}

func infer(labels map[string]string, name, kind, otherwise string) (Ref, bool) {
	r := Ref{Kind: labels[kind], Name: labels[name]}
	if r.Kind == "" {
		r.Kind = otherwise
	}
	return r, r.Name != ""
}
