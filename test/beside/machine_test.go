//go:build peers

package beside

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Whole, as virt-api would complete it.
const machine = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web, namespace: team}
spec:
  runStrategy: Always
  dataVolumeTemplates:
  - metadata: {name: web-root}
    spec:
      source: {http: {url: "http://images/disk.qcow2"}}
      storage: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, storageClassName: waits, resources: {requests: {storage: 1Gi}}}
  template:
    spec:
      architecture: amd64
      terminationGracePeriodSeconds: 0
      domain:
        machine: {type: q35}
        cpu: {cores: 1, sockets: 1, threads: 1, model: host-model}
        memory: {guest: 64Mi}
        resources: {requests: {memory: 64Mi}}
        devices:
          autoattachPodInterface: false
          disks: [{name: root, disk: {bus: virtio}}]
      volumes: [{name: root, dataVolume: {name: web-root}}]
`

// TestMachine: a machine of KubeVirt's with a template of a volume, on a class that waits for the first consumer, is brought by its own
// controller to the launcher that has the claim, with the disk complete before.
func TestMachine(t *testing.T) {
	ctx := t.Context()
	vm := object(t, machine)
	if err := kube.Create(ctx, vm); err != nil {
		t.Fatal(err)
	}
	placeholder := false
	eventually(t, "the placeholder that has the claim bound", func() (bool, error) {
		for _, p := range pods(t, "kubevirt.io", "virt-launcher") {
			_, is := p.Annotations["kubevirt.io/ephemeral-provisioning"]
			placeholder = placeholder || is
		}
		return placeholder, nil
	})
	phase := func(name string) cdiv1.DataVolumePhase {
		var v cdiv1.DataVolume
		if err := kube.Get(ctx, client.ObjectKey{Namespace: team, Name: name}, &v); err != nil {
			t.Fatal(err)
		}
		return v.Status.Phase
	}
	var launcher *corev1.Pod
	eventually(t, "the machine's launcher", func() (bool, error) {
		for _, p := range pods(t, "kubevirt.io", "virt-launcher") {
			if _, is := p.Annotations["kubevirt.io/ephemeral-provisioning"]; !is {
				launcher = &p
			}
		}
		return launcher != nil, nil
	})
	if p := phase("web-root"); p != cdiv1.Succeeded {
		t.Errorf("the launcher was made while the volume was %s", p)
	}
	if !uses(launcher, "web-root") {
		t.Errorf("the launcher does not have the claim: %v", launcher.Spec.Volumes)
	}
	var v cdiv1.DataVolume
	if err := kube.Get(ctx, client.ObjectKey{Namespace: team, Name: "web-root"}, &v); err != nil {
		t.Fatal(err)
	}
	if owner := metav1.GetControllerOf(&v); owner == nil || owner.Kind != "VirtualMachine" || owner.Name != "web" {
		t.Errorf("the volume is not the machine's: %v", owner)
	}
	var c corev1.PersistentVolumeClaim
	if err := kube.Get(ctx, client.ObjectKey{Namespace: team, Name: "web-root"}, &c); err != nil {
		t.Fatal(err)
	}
	if owner := metav1.GetControllerOf(&c); owner == nil || owner.Kind != "DataVolume" || owner.UID != v.UID {
		t.Errorf("the claim is not the volume's: %v", owner)
	}
	eventually(t, "the instance says that its volumes are ready", func() (bool, error) {
		return condition(instance(t), "DataVolumesReady") == "True", nil
	})
	t.Run("a volume is added", func(t *testing.T) { volumeAdded(t, launcher) })
}

const added = `
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: more, namespace: team}
spec:
  source: {blank: {}}
  storage: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, storageClassName: waits, resources: {requests: {storage: 1Gi}}}
`

// volumeAdded: a volume that waits for its first consumer is added to the machine while it runs. Its controller has it filled, where the
// launcher is, and then makes the pod that attaches it.
func volumeAdded(t *testing.T, launcher *corev1.Pod) {
	ctx := t.Context()
	// KubeVirt's agent of the node would say that the guest runs, and in which SELinux context. The kind has no status of its own to write.
	eventually(t, "the machine is scheduled", func() (bool, error) {
		phase, _, _ := unstructured.NestedString(instance(t).Object, "status", "phase")
		return phase == "Scheduled", nil
	})
	runs := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Running","selinuxContext":"none"}}`))
	if err := kube.Patch(ctx, instance(t), runs); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(ctx, object(t, added)); err != nil {
		t.Fatal(err)
	}
	// What virt-api does when it is asked to add a volume.
	add := client.RawPatch(types.JSONPatchType, []byte(`[
		{"op": "add", "path": "/spec/volumes/-", "value": {"name": "more", "dataVolume": {"name": "more", "hotpluggable": true}}},
		{"op": "add", "path": "/spec/domain/devices/disks/-", "value": {"name": "more", "serial": "more", "disk": {"bus": "scsi"}}}]`))
	if err := kube.Patch(ctx, object(t, machineOnly), add); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod that attaches the volume", func() (bool, error) {
		for _, p := range pods(t, "kubevirt.io", "hotplug-disk") {
			if _, is := p.Annotations["kubevirt.io/ephemeral-provisioning"]; !is && uses(&p, "more") {
				return metav1.IsControlledBy(&p, launcher), nil
			}
		}
		return false, nil
	})
	var v cdiv1.DataVolume
	if err := kube.Get(ctx, client.ObjectKey{Namespace: team, Name: "more"}, &v); err != nil {
		t.Fatal(err)
	}
	if v.Status.Phase != cdiv1.Succeeded {
		t.Errorf("the volume is attached while it is %s", v.Status.Phase)
	}
}

// machineOnly names the instance.
const machineOnly = `{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: web, namespace: team}}`

func instance(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	return read(t, "kubevirt.io/v1", "VirtualMachineInstance", "web")
}

// condition returns what an object says about one thing.
func condition(u *unstructured.Unstructured, kind string) string {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range all {
		if is, ok := c.(map[string]any); ok && is["type"] == kind {
			status, _ := is["status"].(string)
			return status
		}
	}
	return ""
}

func uses(p *corev1.Pod, claim string) bool {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim {
			return true
		}
	}
	return false
}
