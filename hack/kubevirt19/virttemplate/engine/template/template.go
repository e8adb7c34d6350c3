// Package template simulates the program that makes machines of templates: there is none.
package template

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"kubevirt.io/virt-template-api/core"
	"kubevirt.io/virt-template-api/core/v1beta1"
)

// Processor makes a machine of a template.
type Processor interface {
	Process(*v1beta1.VirtualMachineTemplate) (*virtv1.VirtualMachine, string, *field.Error)
}

// MergeParameters returns an error.
func MergeParameters([]v1beta1.Parameter, map[string]string) ([]v1beta1.Parameter, error) {
	return nil, core.ErrSimulated
}

// ValidateParameterReferences returns an error.
func ValidateParameterReferences(*v1beta1.VirtualMachineTemplate) ([]string, field.ErrorList) {
	return nil, field.ErrorList{field.InternalError(nil, core.ErrSimulated)}
}

type none struct{}

func (none) Process(*v1beta1.VirtualMachineTemplate) (*virtv1.VirtualMachine, string, *field.Error) {
	return nil, "", field.InternalError(nil, core.ErrSimulated)
}

// GetDefaultProcessor returns a processor that returns an error.
func GetDefaultProcessor() Processor { return none{} }
