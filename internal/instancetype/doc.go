// Package instancetype expands a machine that names an instance type or a preference: the instance type decides processors and
// memory, the preference fills in fields that are not set. It also finds, from the labels of a volume, which of them suit it.
//
// It is pure: it reads no cluster and remembers nothing. Which object a name stands for, and which copy of it a machine was
// started with, is the business of internal/controller/compose.
package instancetype

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"kubevirt.io/api/instancetype/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Type is the content of an instance type of either scope.
type Type = v1beta1.VirtualMachineInstancetypeSpec

// Preference is the content of a preference of either scope.
type Preference = v1beta1.VirtualMachinePreferenceSpec

// Problem is why a machine and its instance type or preference do not go together. Its text is the one clients know.
type Problem struct {
	Fields []*field.Path // of the machine; none where the problem is not in it
	Text   string
}

func (p *Problem) Error() string { return p.Text }

// templatePath is where the instance's spec is in a machine.
var templatePath = field.NewPath("spec", "template", "spec")

func conflict(at ...*field.Path) *Problem {
	names := make([]string, len(at))
	for i, f := range at {
		names[i] = f.String()
	}
	return &Problem{Fields: at, Text: fmt.Sprintf("VM field(s) %s conflicts with selected instance type", strings.Join(names, ", "))}
}

// Conflicts returns the fields of a machine that are for its instance type to decide. They can be told without knowing the
// instance type, because every one of them says how many processors and how much memory there are.
func Conflicts(spec *kubevirt.VirtualMachineInstanceSpec) []*Problem {
	var out []*Problem
	domain := templatePath.Child("domain")
	if c := spec.Domain.CPU; c != nil {
		for _, f := range []struct {
			name  string
			value uint32
		}{{"cores", c.Cores}, {"sockets", c.Sockets}, {"threads", c.Threads}} {
			if f.value != 0 {
				out = append(out, conflict(domain.Child("cpu", f.name)))
			}
		}
	}
	if m := spec.Domain.Memory; m != nil && m.Guest != nil {
		out = append(out, conflict(domain.Child("memory", "guest")))
	}
	for _, f := range []struct {
		list string
		set  map[string]bool
	}{
		{"requests", names(spec.Domain.Resources.Requests)}, {"limits", names(spec.Domain.Resources.Limits)},
	} {
		for _, resource := range []string{"cpu", "memory"} {
			if f.set[resource] {
				out = append(out, conflict(domain.Child("resources", f.list, resource)))
			}
		}
	}
	return out
}

func names[K ~string, V any](m map[K]V) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[string(k)] = true
	}
	return out
}
