package expose

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

func TestWords(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Protocol: "TCP", Type: "ClusterIP"}, ""},
		{Options{Protocol: "UDP", Type: "NodePort", IPFamily: "ipv4,ipv6"}, ""},
		{Options{Protocol: "tcp", Type: "ClusterIP"}, "unknown protocol: tcp"},
		{Options{Protocol: "TCP", Type: "ExternalName"}, "type: ExternalName not supported"},
		{Options{Protocol: "TCP", Type: "Magic"}, "unknown service type: Magic"},
		{Options{Protocol: "TCP", Type: "ClusterIP", IPFamily: "ipv5"}, "unknown IPFamily/s: ipv5"},
		{Options{Protocol: "TCP", Type: "ClusterIP", IPFamilyPolicy: "some"}, "unknown IPFamilyPolicy: some"},
	} {
		var s corev1.ServiceSpec
		err := c.o.complete(&s)
		if got := ""; err != nil && err.Error() != c.want || err == nil && got != c.want {
			t.Errorf("%+v: %v", c.o, err)
		}
		if err == nil && len(s.IPFamilies) == 2 && (s.IPFamilyPolicy == nil || *s.IPFamilyPolicy != corev1.IPFamilyPolicyPreferDualStack) {
			t.Errorf("two families without a policy: %+v", s)
		}
	}
}

func TestListedPorts(t *testing.T) {
	var spec kubevirt.VirtualMachineInstanceSpec
	spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Ports: []kubevirt.Port{{Port: 80}, {Port: 53, Protocol: "UDP"}}}}
	got := ports(&spec)
	if len(got) != 2 || got[0].Name != "port-1" || got[0].Protocol != corev1.ProtocolTCP || got[1].TargetPort.IntVal != 53 || got[1].Protocol != corev1.ProtocolUDP {
		t.Errorf("%+v", got)
	}
}
