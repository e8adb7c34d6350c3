package instancetype

import "kubevirt.io/api/instancetype"

// Ref names an instance type or a preference. Its kind is never empty.
type Ref struct {
	Kind string
	Name string
}

// The kinds.
const (
	KindType              = "VirtualMachineInstancetype"
	KindClusterType       = "VirtualMachineClusterInstancetype"
	KindPreference        = "VirtualMachinePreference"
	KindClusterPreference = "VirtualMachineClusterPreference"
)

// InferType is the instance type that the labels of a volume or of its source name.
func InferType(labels map[string]string) (Ref, bool) {
	return infer(labels, instancetype.DefaultInstancetypeLabel, instancetype.DefaultInstancetypeKindLabel, KindClusterType)
}

// InferPreference is the preference that the labels of a volume or of its source name.
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
