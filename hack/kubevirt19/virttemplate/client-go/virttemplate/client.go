// Package virttemplate simulates the client of VirtualMachineTemplates: there is none.
package virttemplate

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"kubevirt.io/virt-template-api/core"
	"kubevirt.io/virt-template-api/core/subresourcesv1beta1"
	"kubevirt.io/virt-template-api/core/v1beta1"
)

// Interface is the client.
type Interface interface {
	TemplateV1beta1() TemplateV1beta1Interface
}

// TemplateV1beta1Interface is the client of the API group.
type TemplateV1beta1Interface interface {
	RESTClient() rest.Interface
	VirtualMachineTemplates(namespace string) VirtualMachineTemplateInterface
	VirtualMachineTemplateRequests(namespace string) VirtualMachineTemplateRequestInterface
}

// VirtualMachineTemplateInterface is the client of templates.
type VirtualMachineTemplateInterface interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1beta1.VirtualMachineTemplate, error)
	CreateVirtualMachine(ctx context.Context, name string, opts subresourcesv1beta1.ProcessOptions) (*subresourcesv1beta1.ProcessedVirtualMachineTemplate, error)
	Process(ctx context.Context, name string, opts subresourcesv1beta1.ProcessOptions) (*subresourcesv1beta1.ProcessedVirtualMachineTemplate, error)
}

// VirtualMachineTemplateRequestInterface is the client of requests for templates.
type VirtualMachineTemplateRequestInterface interface {
	Create(ctx context.Context, r *v1beta1.VirtualMachineTemplateRequest, opts metav1.CreateOptions) (*v1beta1.VirtualMachineTemplateRequest, error)
}

// NewForConfig returns an error: the client is not compiled in.
func NewForConfig(*rest.Config) (Interface, error) { return nil, core.ErrSimulated }
