package render

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestGivenToTheGuest: what a machine says of DNS, keys, and disks with what the API server knows is in its launcher's pod.
func TestGivenToTheGuest(t *testing.T) {
	i := &kubevirt.VirtualMachineInstance{}
	i.Name, i.Namespace, i.UID = "vm", "team", "uid"
	if err := yaml.UnmarshalStrict([]byte(`
dnsPolicy: None
dnsConfig: {nameservers: [10.0.0.10]}
domain:
  devices: {}
  memory: {guest: 1Gi, reservedOverhead: {addedOverhead: 64Mi}}
  resources: {overcommitGuestOverhead: true}
accessCredentials:
- sshPublicKey: {source: {secret: {secretName: agent}}, propagationMethod: {qemuGuestAgent: {users: [a]}}}
- sshPublicKey: {source: {secret: {secretName: keys}}, propagationMethod: {noCloud: {}}}
volumes:
- {name: seed, cloudInitNoCloud: {userData: "#cloud-config"}}
- {name: labels, downwardAPI: {fields: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
- {name: answers, sysprep: {secret: {name: answers}}}
- {name: setup, sysprep: {configMap: {name: setup}}}
`), &i.Spec); err != nil {
		t.Fatal(err)
	}
	pod, err := Machine{Instance: i, Image: "launcher"}.Pod(Launcher)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Spec.DNSPolicy != corev1.DNSNone || pod.Spec.DNSConfig == nil || pod.Spec.DNSConfig.Nameservers[0] != "10.0.0.10" {
		t.Errorf("DNS is %s, %v", pod.Spec.DNSPolicy, pod.Spec.DNSConfig)
	}
	if memory := pod.Spec.Containers[0].Resources.Requests.Memory(); memory.Value() != 1<<30+64<<20 {
		t.Errorf("the pod asks for %s of memory", memory)
	}
	have := map[string]corev1.VolumeSource{}
	for _, v := range pod.Spec.Volumes {
		have[v.Name] = v.VolumeSource
	}
	mounted := map[string]string{}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		mounted[m.Name] = m.MountPath
	}
	for name, right := range map[string]bool{
		launcherapi.AccessMount(1): have[launcherapi.AccessMount(1)].Secret != nil && have[launcherapi.AccessMount(1)].Secret.SecretName == "keys",
		"labels":                   have["labels"].DownwardAPI != nil && have["labels"].DownwardAPI.Items[0].Path == "labels",
		"answers":                  have["answers"].Secret != nil && have["answers"].Secret.SecretName == "answers",
		"setup":                    have["setup"].ConfigMap != nil && have["setup"].ConfigMap.Name == "setup",
	} {
		if !right || mounted[name] != launcherapi.MountDir+"/"+name {
			t.Errorf("volume %s is %+v at %q", name, have[name], mounted[name])
		}
	}
	if s := have[launcherapi.AccessMount(0)].Secret; s == nil || s.Optional == nil || !*s.Optional {
		t.Errorf("the Secret for the guest agent is %+v", s)
	}
}
