package aggregated

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

func ownedRefs(uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{UID: uid, Controller: ptr.To(true)}}
}

// kinds are an instance type and a preference, and a copy of the instance type as it was before.
var kinds = map[string]string{
	"VirtualMachineClusterInstancetype//u1": `{"kind":"VirtualMachineClusterInstancetype","spec":{"cpu":{"guest":2},"memory":{"guest":"2Gi"}}}`,
	"VirtualMachinePreference/ns/p1":        `{"kind":"VirtualMachinePreference","spec":{"devices":{"preferredDiskBus":"sata"}}}`,
	"old":                                   `{"kind":"VirtualMachineClusterInstancetype","spec":{"cpu":{"guest":7},"memory":{"guest":"1Gi"}}}`,
	"daemon":                                `{"spec":{"template":{}}}`,
}

// TestExpand: a machine is shown whole, as it would run, with the copy that it was started with; the request's own word about copies is
// not believed, and no other object can be read by it.
func TestExpand(t *testing.T) {
	plain, sized, started, inferred := vm(kubevirt.RunAlways), vm(kubevirt.RunAlways), vm(kubevirt.RunAlways), vm(kubevirt.RunAlways)
	sized.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "u1"}
	sized.Spec.Preference = &kubevirt.PreferenceMatcher{Name: "p1", Kind: "VirtualMachinePreference"}
	sized.Spec.Template.Spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "root", DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{}}}}
	started.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "u1"}
	started.Status.InstancetypeRef = &kubevirt.InstancetypeStatusRef{Name: "u1", Kind: "VirtualMachineClusterInstancetype",
		ControllerRevisionRef: &kubevirt.ControllerRevisionRef{Name: "old"}}
	inferred.Spec.Instancetype = &kubevirt.InstancetypeMatcher{InferFromVolume: "root"}
	for name, row := range map[string]struct {
		machine *kubevirt.VirtualMachine // of the cluster, or else in the request
		body    string
		status  int
		want    string
	}{
		"nothing to expand":  {plain, "", 200, `"kind":"VirtualMachine"`},
		"both":               {sized, "", 200, `"guest":"2Gi"`},
		"the bus":            {sized, "", 200, `"bus":"sata"`},
		"as it was started":  {started, "", 200, `"guest":"1Gi"`},
		"not inferred yet":   {inferred, "", 400, "it is inferred from volume root"},
		"from the request":   {nil, `{"spec":{"instancetype":{"name":"u1"},"template":{"spec":{"domain":{"devices":{}}}}}}`, 200, `"guest":"2Gi"`},
		"no machine":         {nil, `{"spec":{}}`, 400, "Object is not a valid VirtualMachine"},
		"another namespace":  {nil, `{"metadata":{"namespace":"other"},"spec":{"template":{}}}`, 400, "VM namespace must be empty or ns"},
		"no such type":       {nil, `{"spec":{"instancetype":{"name":"u2"},"template":{}}}`, 404, "not found"},
		"conflict":           {nil, `{"spec":{"instancetype":{"name":"u1"},"template":{"spec":{"domain":{"cpu":{"cores":3},"devices":{}}}}}}`, 400, "conflicts with selected instance type"},
		"no such kind":       {nil, `{"spec":{"instancetype":{"name":"u1","kind":"Secret"},"template":{}}}`, 400, "unexpected kind in matcher: Secret"},
		"any case":           {nil, `{"spec":{"instancetype":{"name":"u1","kind":"virtualmachineclusterinstancetype"},"template":{}}}`, 200, `"guest":"2Gi"`},
		"a foreign revision": {nil, `{"spec":{"instancetype":{"name":"u1","revisionName":"daemon"},"template":{}}}`, 400, "is no copy of a"},
		"a claimed start":    {nil, `{"spec":{"instancetype":{"name":"u1"},"template":{}},"status":{"instancetypeRef":{"name":"u1","controllerRevisionRef":{"name":"old"}}}}`, 200, `"guest":"2Gi"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, &world{machine: row.machine, kinds: kinds})
			method, path := http.MethodGet, "virtualmachines/vm/expand-spec"
			if row.machine == nil {
				method, path = http.MethodPut, "expand-vm-spec"
			}
			status, text := send(t, s, method, base+path, row.body)
			if status != row.status || !strings.Contains(text, row.want) {
				t.Errorf("got %d %s", status, text)
			}
			if status == http.StatusOK && strings.Contains(text, `"instancetype"`) {
				t.Errorf("the machine still names its instance type: %s", text)
			}
		})
	}
}

// TestObjectGraph: everything a machine needs is in the graph, once, and can be chosen by its role.
func TestObjectGraph(t *testing.T) {
	m, i := vm(kubevirt.RunAlways), vmi(kubevirt.PhaseRunning)
	m.UID, i.OwnerReferences = "m1", ownedRefs("m1")
	m.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "u1"}
	m.Status.InstancetypeRef = &kubevirt.InstancetypeStatusRef{Name: "u1", ControllerRevisionRef: &kubevirt.ControllerRevisionRef{Name: "old"}}
	m.Spec.VolumeClaimTemplates = []kubevirt.VolumeClaimTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "own"}}}
	m.Spec.Template.Spec.Volumes = []kubevirt.Volume{
		{Name: "a", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "dv"}}},
		{Name: "b", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "own"}}},
		{Name: "c", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitSource{UserDataSecretRef: &corev1.LocalObjectReference{Name: "s"}}}},
		{Name: "d", VolumeSource: kubevirt.VolumeSource{ConfigMap: &kubevirt.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}},
	}
	m.Spec.Template.Spec.AccessCredentials = []kubevirt.AccessCredential{{SSHPublicKey: &kubevirt.SSHPublicKeyAccess{
		Source: kubevirt.CredentialSource{Secret: &kubevirt.CredentialSecret{SecretName: "keys"}}}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "virt-launcher-vm"}}
	for name, row := range map[string]struct{ kind, body, want string }{
		"all": {"virtualmachines", "", "VirtualMachine vm(VirtualMachineInstance vm(Pod virt-launcher-vm) VirtualMachineClusterInstancetype u1 " +
			"ControllerRevision old Secret keys DataVolume dv(PersistentVolumeClaim dv) PersistentVolumeClaim vm-own Secret s ConfigMap cm)"},
		"no optional": {"virtualmachines", `{"includeOptionalNodes":false,"labelSelector":{"matchLabels":{"kubevirt.io/dependency-type":"config"}}}`,
			"VirtualMachine vm(ControllerRevision old Secret keys Secret s ConfigMap cm)"},
		"storage": {"virtualmachines", `{"labelSelector":{"matchLabels":{"kubevirt.io/dependency-type":"storage"}}}`,
			"VirtualMachine vm(DataVolume dv(PersistentVolumeClaim dv) PersistentVolumeClaim vm-own)"},
		"instance": {"virtualmachineinstances", "", "VirtualMachineInstance vm(Pod virt-launcher-vm DataVolume dv(PersistentVolumeClaim dv))"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := send(t, serve(t, &world{machine: m, instance: i, pod: pod}), http.MethodGet, base+row.kind+"/vm/objectgraph", row.body)
			var root graphNode
			if err := json.Unmarshal([]byte(text), &root); status != http.StatusOK || err != nil {
				t.Fatalf("got %d %s: %v", status, text, err)
			}
			if got := drawn(root); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

func drawn(n graphNode) string {
	text := n.ObjectReference.Kind + " " + n.ObjectReference.Name
	var below []string
	for _, c := range n.Children {
		below = append(below, drawn(c))
	}
	if below != nil {
		text += "(" + strings.Join(below, " ") + ")"
	}
	return text
}
