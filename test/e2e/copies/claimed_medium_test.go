//go:build e2e

package copies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

const (
	onClaim     = "claimed" // the usage type
	hostname    = "kubernetes.io/hostname"
	usageOfPods = "kubevirt.io/storage.usage-type."
)

// TestMediumIsAClaim: a claim is mounted into the driver's pod of one node, which a DaemonSet of its own makes, and is what a usage type is kept in. It runs
// alone because it starts the driver of every node again.
func TestMediumIsAClaim(t *testing.T) {
	y := fixture.NewMachines(t)
	nodes := y.ReadyNodes()
	node := nodes[len(nodes)-1]
	onMedia(y, "mount", node, "mkdir -p /storage/claimed; mount -t tmpfs -o size=512m claimed /storage/claimed; touch /storage/claimed/pool.json")
	defer onMedia(y, "unmount", node, "umount -l /storage/claimed; rmdir /storage/claimed") // a cleanup has no time to wait
	claimMedium(y, node)
	defer driveAsBefore(y, node)
	driveFromClaim(y, node)

	vm := y.MachineWithCopy("copy", kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: onClaim, Capacity: new(resource.MustParse("64Mi"))})
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	if got := y.LauncherOf(vm).Spec.NodeName; got != node {
		t.Errorf("the machine runs on node %s, and its medium is on %s", got, node)
	}
	if out := onMedia(y, "look", node, "ls /storage/claimed/volumes"); len(strings.Fields(out)) != 1 {
		t.Errorf("the copy is not in the claim, which has %q", out)
	}
	var volumes []string
	for _, c := range y.CopyClaims() {
		volumes = append(volumes, c.Spec.VolumeName)
	}
	if err := y.Kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	y.CopiesGone(volumes)
	if out := onMedia(y, "after", node, "ls /storage/claimed/volumes"); strings.TrimSpace(out) != "" {
		t.Errorf("left in the claim: %q", out)
	}
}

// claimMedium makes a claim with the directory of the medium in the driver's namespace.
func claimMedium(y *fixture.Machines, node string) {
	y.T.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("512Mi")}
	access := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: hostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: y.Namespace + "-medium"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: access, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/var/lib/storage/claimed"}},
		NodeAffinity:           &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}}}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: driverNamespace, Name: onClaim}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: new(""), VolumeName: pv.Name, AccessModes: access, Resources: corev1.VolumeResourceRequirements{Requests: size}}}
	for _, obj := range []client.Object{pv, c} {
		if err := y.Kube.Create(y.Context(), obj); err != nil {
			y.T.Fatal(err)
		}
		y.T.Cleanup(func() { _ = y.Kube.Delete(context.Background(), obj) })
	}
}

// driver is the driver that is installed.
func driver(y *fixture.Machines) *appsv1.DaemonSet {
	y.T.Helper()
	d := &appsv1.DaemonSet{}
	if err := y.Kube.Get(y.Context(), client.ObjectKey{Namespace: driverNamespace, Name: "localdisk"}, d); err != nil {
		y.T.Fatal(err)
	}
	return d
}

// driveFromClaim runs the driver of a node with the claim, and the driver of the other nodes without.
func driveFromClaim(y *fixture.Machines, node string) {
	y.T.Helper()
	all := driver(y)
	one := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: driverNamespace, Name: "localdisk-claimed"}, Spec: *all.Spec.DeepCopy()}
	one.Spec.Selector.MatchLabels["medium"] = onClaim
	pod := &one.Spec.Template
	pod.Labels["medium"] = onClaim
	pod.Spec.NodeSelector = map[string]string{hostname: node}
	pod.Annotations = map[string]string{usageOfPods + onClaim: "/media/claimed"}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: onClaim,
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: onClaim}}})
	main := &pod.Spec.Containers[slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "driver" })]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: onClaim, MountPath: "/media/claimed"})

	onNodes(y, all, &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: hostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}}}}}}}})
	if err := y.Kube.Create(y.Context(), one); err != nil {
		y.T.Fatal(err)
	}
	waitDrivers(y, one)
	y.Wait("the class of the claim", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKey{Name: "localdisk-" + onClaim}, &storagev1.StorageClass{})
		return err == nil, fmt.Sprint(err)
	})
}

// onNodes has a DaemonSet run on nodes of an affinity; on all if it is nil.
func onNodes(y *fixture.Machines, d *appsv1.DaemonSet, where *corev1.Affinity) {
	y.T.Helper()
	base := d.DeepCopy()
	d.Spec.Template.Spec.Affinity = where
	if err := y.Kube.Patch(y.Context(), d, client.StrategicMergeFrom(base)); err != nil {
		y.T.Fatal(err)
	}
	waitDrivers(y, d)
}

// waitDrivers waits until all pods of a DaemonSet are as it wants them now.
func waitDrivers(y *fixture.Machines, d *appsv1.DaemonSet) {
	y.T.Helper()
	y.Wait("the pods of "+d.Name, fixture.BootPatience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return false, err.Error()
		}
		s := d.Status
		return s.ObservedGeneration == d.Generation && s.NumberMisscheduled == 0 && s.DesiredNumberScheduled > 0 && s.UpdatedNumberScheduled == s.DesiredNumberScheduled &&
			s.NumberAvailable == s.DesiredNumberScheduled, fmt.Sprintf("%+v", s)
	})
}

// driveAsBefore removes the driver with the claim and what it offered, and runs the other one on all nodes.
func driveAsBefore(y *fixture.Machines, node string) {
	y.T.Helper()
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: driverNamespace, Name: "localdisk-claimed"}}
	if err := client.IgnoreNotFound(y.Kube.Delete(y.Context(), d)); err != nil {
		y.T.Error(err)
	}
	y.Wait("the driver with the claim to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
		var list corev1.PodList
		err := y.Kube.List(ctx, &list, client.InNamespace(driverNamespace), client.MatchingLabels{"medium": onClaim})
		return err == nil && len(list.Items) == 0, fmt.Sprintf("%d pods, %v", len(list.Items), err)
	})
	y.Kubectl("label", "node", node, usageLabel+onClaim+"-")
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "localdisk-" + onClaim}}
	if err := client.IgnoreNotFound(y.Kube.Delete(y.Context(), class)); err != nil {
		y.T.Error(err)
	}
	onNodes(y, driver(y), nil)
}
