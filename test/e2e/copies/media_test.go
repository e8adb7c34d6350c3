//go:build e2e

package copies

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/pkg/claim"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

const (
	driverNamespace = "localdisk"
	usageLabel      = "localdisk.berth.dev/usage-type."
)

// onMedia runs a script on a node with the directories of its usage types at /storage.
func onMedia(y *fixture.Machines, name, node, script string) string {
	y.T.Helper()
	return y.Run(framework.Pod{Name: name, Node: node, Script: script, Change: func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "storage", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: "/var/lib/storage", Type: new(corev1.HostPathDirectoryOrCreate)}}}}
		main := &p.Spec.Containers[0]
		main.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		main.VolumeMounts = []corev1.VolumeMount{{Name: "storage", MountPath: "/storage", MountPropagation: new(corev1.MountPropagationBidirectional)}}
	}})
}

// restartDriver has the driver of a node read its pod's annotations again.
func restartDriver(y *fixture.Machines, node string) {
	y.T.Helper()
	of := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=localdisk", FieldSelector: "spec.nodeName=" + node}
	list, err := y.Client.CoreV1().Pods(driverNamespace).List(context.Background(), of)
	if err != nil {
		y.T.Fatal(err)
	}
	old := map[types.UID]bool{}
	for _, p := range list.Items {
		old[p.UID] = true
		_ = y.Client.CoreV1().Pods(driverNamespace).Delete(context.Background(), p.Name, metav1.DeleteOptions{}) // it may be gone already
	}
	y.Wait("the driver of node "+node+" to be there again", fixture.Patience, func(ctx context.Context) (bool, string) {
		list, err := y.Client.CoreV1().Pods(driverNamespace).List(ctx, of)
		if err != nil {
			return false, err.Error()
		}
		for _, p := range list.Items {
			if !old[p.UID] && pods.Ready(&p) {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d pods", len(list.Items))
	})
}

// medium mounts a pool of a usage type on a node, for as long as the test runs.
func medium(y *fixture.Machines, usage, node string) {
	y.T.Helper()
	onMedia(y, "mount-"+usage, node, fmt.Sprintf("mkdir -p /storage/%[1]s; mount -t tmpfs -o size=512m %[1]s /storage/%[1]s; touch /storage/%[1]s/pool.json", usage))
	restartDriver(y, node)
	y.T.Cleanup(func() {
		_ = y.Kube.Delete(context.Background(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "localdisk-" + usage}})
		patch := fmt.Sprintf(`{"metadata":{"labels":{"%s%s":null}}}`, usageLabel, usage) // the kubelet only ever adds them
		_, err := y.Client.CoreV1().Nodes().Patch(context.Background(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			y.T.Error(err)
		}
		_ = y.Kube.Delete(context.Background(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "localdisk-" + usage}}) // it may have been made again meanwhile
	})
}

// TestUsageTypesOfDriverPods is the proposal's own form: the driver's pods name usage types and where they are mounted. A node offers those that it
// has, the class is made by us, machines run where their medium is, and nothing is left on it.
func TestUsageTypesOfDriverPods(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	nodes := y.ReadyNodes()
	place := map[string]string{"ssd": nodes[0], "rust": nodes[1]}
	machines := map[string]*kubevirt.VirtualMachine{}
	for usage, node := range place {
		medium(y, usage, node)
	}
	y.Wait("the nodes to offer what they have", fixture.Patience, func(ctx context.Context) (bool, string) {
		var list corev1.NodeList
		if err := y.Kube.List(ctx, &list); err != nil {
			return false, err.Error()
		}
		for _, n := range list.Items {
			for usage, node := range place {
				if _, offers := n.Labels[usageLabel+usage]; offers != (n.Name == node) {
					return false, fmt.Sprintf("node %s offers %s: %v", n.Name, usage, offers)
				}
			}
		}
		return true, ""
	})
	for usage := range place {
		var class storagev1.StorageClass
		y.Wait("a class for "+usage, fixture.Patience, func(ctx context.Context) (bool, string) {
			err := y.Kube.Get(ctx, client.ObjectKey{Name: "localdisk-" + usage}, &class)
			return err == nil, fmt.Sprint(err)
		})
		if class.Annotations[claim.UsageTypePrefix+usage] == "" {
			t.Errorf("class %s says nothing of its usage type", class.Name)
		}
		vm := y.MachineWithCopy(usage, kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: usage, Capacity: new(resource.MustParse("64Mi"))})
		y.CreateMachine(vm)
		machines[usage] = vm
	}
	var volumes []string
	for usage, vm := range machines {
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		if _, launchers := y.PodsOf(t.Context(), vm); launchers[0].Spec.NodeName != place[usage] {
			t.Errorf("machine %s runs on node %s, not %s", vm.Name, launchers[0].Spec.NodeName, place[usage])
		}
		if out := onMedia(y, "look-"+usage, place[usage], "ls /storage/"+usage+"/volumes"); len(strings.Fields(out)) != 1 {
			t.Errorf("the copy of machine %s is not in its pool, which has %q", vm.Name, out)
		}
	}
	for _, c := range y.CopyClaims() {
		volumes = append(volumes, c.Spec.VolumeName)
	}
	for _, vm := range machines {
		if err := y.Kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	y.CopiesGone(volumes)
	for usage, node := range place {
		if out := onMedia(y, "after-"+usage, node, "ls /storage/"+usage+"/volumes"); strings.TrimSpace(out) != "" {
			t.Errorf("left in the pool of %s: %q", usage, out)
		}
		onMedia(y, "unmount-"+usage, node, fmt.Sprintf("umount -l /storage/%[1]s; rmdir /storage/%[1]s", usage))
		restartDriver(y, node)
	}
}
