// Package expose makes a Service for the ports of a machine. It creates the Service and does not wait for it.
package expose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/virtctl/forward"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Options are the flags.
type Options struct {
	Name, ClusterIP, ExternalIP, LoadBalancerIP, Protocol, TargetPort, Type, PortName, IPFamily, IPFamilyPolicy string

	Port, NodePort int32
}

// Service returns the one for a machine of that kind and name. It chooses the machine's own pod by a label that no other machine's
// has. The texts are those of KubeVirt's virtctl. unlisted are ports that the machine does not list, so connections to them fail.
func Service(ctx context.Context, c *kube.Client, kind, name string, o Options) (service *corev1.Service, unlisted []string, err error) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: c.Namespace}, Spec: corev1.ServiceSpec{
		Selector:  map[string]string{render.LabelMachine: "virt-launcher", render.LabelDomain: name},
		ClusterIP: o.ClusterIP, LoadBalancerIP: o.LoadBalancerIP,
	}}
	if err := o.complete(&s.Spec); err != nil {
		return nil, nil, err
	}
	spec, err := read(ctx, c, kind, name)
	if err != nil {
		return nil, nil, err
	}
	listed := ports(spec)
	switch {
	case o.Port != 0:
		s.Spec.Ports = []corev1.ServicePort{{
			Name: o.PortName, Protocol: corev1.Protocol(o.Protocol), Port: o.Port, TargetPort: intstr.Parse(o.TargetPort), NodePort: o.NodePort}}
		if o.TargetPort == "" {
			s.Spec.Ports[0].TargetPort = intstr.FromInt32(o.Port)
		}
	case len(listed) == 0:
		return nil, nil, errors.New("couldn't find port via --port flag or introspection")
	default:
		s.Spec.Ports = listed
	}
	for _, p := range s.Spec.Ports {
		if !slices.ContainsFunc(listed, func(l corev1.ServicePort) bool { return l.Protocol == p.Protocol && l.TargetPort == p.TargetPort }) {
			unlisted = append(unlisted, p.TargetPort.String())
		}
	}
	return s, unlisted, nil
}

// complete checks the words among the flags and writes them into the Service.
func (o Options) complete(s *corev1.ServiceSpec) error {
	if o.Protocol != "TCP" && o.Protocol != "UDP" {
		return fmt.Errorf("unknown protocol: %s", o.Protocol)
	}
	switch t := corev1.ServiceType(o.Type); t {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		s.Type = t
	case corev1.ServiceTypeExternalName:
		return fmt.Errorf("type: %s not supported", o.Type)
	default:
		return fmt.Errorf("unknown service type: %s", o.Type)
	}
	if o.ExternalIP != "" {
		s.ExternalIPs = []string{o.ExternalIP}
	}
	return o.families(s)
}

func (o Options) families(s *corev1.ServiceSpec) error {
	if o.IPFamily != "" {
		for f := range strings.SplitSeq(strings.ToLower(o.IPFamily), ",") {
			switch f {
			case "ipv4":
				s.IPFamilies = append(s.IPFamilies, corev1.IPv4Protocol)
			case "ipv6":
				s.IPFamilies = append(s.IPFamilies, corev1.IPv6Protocol)
			default:
				return fmt.Errorf("unknown IPFamily/s: %s", o.IPFamily)
			}
		}
	}
	policies := map[string]corev1.IPFamilyPolicy{
		"singlestack": corev1.IPFamilyPolicySingleStack, "preferdualstack": corev1.IPFamilyPolicyPreferDualStack,
		"requiredualstack": corev1.IPFamilyPolicyRequireDualStack,
	}
	policy, known := policies[strings.ToLower(o.IPFamilyPolicy)]
	switch {
	case known:
		s.IPFamilyPolicy = &policy
	case o.IPFamilyPolicy != "":
		return fmt.Errorf("unknown IPFamilyPolicy: %s", o.IPFamilyPolicy)
	case len(s.IPFamilies) > 1:
		policy = corev1.IPFamilyPolicyPreferDualStack
		s.IPFamilyPolicy = &policy
	}
	return nil
}

// read returns the machine to expose.
func read(ctx context.Context, c *kube.Client, kind, name string) (*kubevirt.VirtualMachineInstanceSpec, error) {
	switch forward.Kind(kind) {
	case "vmi":
		i, err := kube.Instances.Get(ctx, c, name)
		if err == nil && i == nil {
			err = fmt.Errorf("there is no VMI %s/%s", c.Namespace, name)
		}
		if err != nil {
			return nil, fmt.Errorf("error fetching VirtualMachineInstance: %w", err)
		}
		return &i.Spec, nil
	case "vm":
		m, err := kube.Machines.Get(ctx, c, name)
		if err == nil && m == nil {
			err = fmt.Errorf("there is no VM %s/%s", c.Namespace, name)
		}
		if err != nil {
			return nil, fmt.Errorf("error fetching Virtual Machine: %w", err)
		}
		if m.Spec.Template == nil {
			return &kubevirt.VirtualMachineInstanceSpec{}, nil
		}
		return &m.Spec.Template.Spec, nil
	}
	return nil, fmt.Errorf("unsupported resource type: %s", kind)
}

// ports returns those that the machine lists.
func ports(spec *kubevirt.VirtualMachineInstanceSpec) []corev1.ServicePort {
	var out []corev1.ServicePort
	for _, i := range spec.Domain.Devices.Interfaces {
		for _, p := range i.Ports {
			protocol := corev1.Protocol(p.Protocol)
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			out = append(out, corev1.ServicePort{
				Name: fmt.Sprintf("port-%d", len(out)+1), Protocol: protocol, Port: p.Port, TargetPort: intstr.FromInt32(p.Port)})
		}
	}
	return out
}
