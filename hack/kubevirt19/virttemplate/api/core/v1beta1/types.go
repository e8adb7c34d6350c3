// Package v1beta1 simulates the types of VirtualMachineTemplates that virtctl's code mentions.
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"kubevirt.io/virt-template-api/core"
)

// GroupVersion is the group and version of VirtualMachineTemplates.
var GroupVersion = schema.GroupVersion{Group: core.GroupName, Version: "v1beta1"}

// VirtualMachineTemplate is a machine with parameters.
type VirtualMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VirtualMachineTemplateSpec `json:"spec,omitempty"`
}

// DeepCopyObject copies only the name and namespace of a template: no caller needs more.
func (t *VirtualMachineTemplate) DeepCopyObject() runtime.Object {
	return &VirtualMachineTemplate{TypeMeta: t.TypeMeta, ObjectMeta: *t.ObjectMeta.DeepCopy()}
}

// VirtualMachineTemplateSpec is a machine and its parameters.
type VirtualMachineTemplateSpec struct {
	VirtualMachine *runtime.RawExtension `json:"virtualMachine,omitempty"`
	Parameters     []Parameter           `json:"parameters,omitempty"`
	Message        string                `json:"message,omitempty"`
}

// Parameter is a value that may be set.
type Parameter struct {
	Name        string `json:"name"`
	DisplayName string `json:"displayName,omitempty"`
	Description string `json:"description,omitempty"`
	Value       string `json:"value,omitempty"`
	Generate    string `json:"generate,omitempty"`
	From        string `json:"from,omitempty"`
	Required    bool   `json:"required,omitempty"`
}

// VirtualMachineTemplateRequest asks for a template of a machine.
type VirtualMachineTemplateRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VirtualMachineTemplateRequestSpec `json:"spec"`
}

// VirtualMachineTemplateRequestSpec names the machine.
type VirtualMachineTemplateRequestSpec struct {
	VirtualMachineRef VirtualMachineReference `json:"virtualMachineRef"`
	TemplateName      string                  `json:"templateName,omitempty"`
}

// VirtualMachineReference is a machine in a namespace.
type VirtualMachineReference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}
