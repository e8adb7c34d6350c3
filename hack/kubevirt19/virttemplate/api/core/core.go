// Package core simulates the names of KubeVirt's template API.
package core

import "errors"

const (
	GroupName                   = "template.kubevirt.io"
	SingularResourceName        = "virtualmachinetemplate"
	PluralResourceName          = "virtualmachinetemplates"
	SingularRequestResourceName = "virtualmachinetemplaterequest"
)

// ErrSimulated is the error that every function of the simulation returns.
var ErrSimulated = errors.New("this virtctl was compiled without the modules of VirtualMachineTemplates")
