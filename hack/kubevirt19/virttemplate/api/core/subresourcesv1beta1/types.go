// Package subresourcesv1beta1 simulates the questions that virtctl asks about templates.
package subresourcesv1beta1

import virtv1 "kubevirt.io/api/core/v1"

// ProcessOptions are values of parameters.
type ProcessOptions struct {
	Parameters map[string]string `json:"parameters,omitempty"`
}

// ProcessedVirtualMachineTemplate is a machine that a template came to.
type ProcessedVirtualMachineTemplate struct {
	VirtualMachine *virtv1.VirtualMachine `json:"virtualMachine,omitempty"`
	Message        string                 `json:"message,omitempty"`
}
