//go:build e2e

package snapshot

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// restoreSays waits until the restore called back says something.
func restoreSays(y *fixture.Machines, want string) {
	y.T.Helper()
	y.Wait("the restore to say "+want, 2*time.Minute, func(ctx context.Context) (bool, string) {
		var r snapshotv1.VirtualMachineRestore
		if err := y.Kube.Get(ctx, client.ObjectKey{Namespace: y.Namespace, Name: "back"}, &r); err != nil {
			return false, err.Error()
		}
		for _, c := range r.Status.Conditions {
			if strings.Contains(c.Message, want) {
				return true, ""
			}
		}
		return false, fmt.Sprint(r.Status.Conditions)
	})
}

// withdrawRestore deletes the restore called back and waits until it is gone.
func withdrawRestore(y *fixture.Machines) {
	y.T.Helper()
	y.Kubectl("delete", "virtualmachinerestore", "back", "--wait", "--timeout=60s")
}

// copiedClass makes a copy of the class localdisk, which goes with the test, and returns it as it was made.
func copiedClass(y *fixture.Machines) *storagev1.StorageClass {
	y.T.Helper()
	base, err := y.Client.StorageV1().StorageClasses().Get(y.Context(), fixture.ClassDisk, metav1.GetOptions{})
	if err != nil {
		y.T.Fatal(err)
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "copy-" + y.Namespace}, Provisioner: base.Provisioner,
		Parameters: base.Parameters, VolumeBindingMode: base.VolumeBindingMode, ReclaimPolicy: base.ReclaimPolicy}
	makeClass(y, class)
	y.T.Cleanup(func() {
		_ = y.Client.StorageV1().StorageClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{})
	})
	return class
}

func makeClass(y *fixture.Machines, class *storagev1.StorageClass) {
	y.T.Helper()
	if _, err := y.Client.StorageV1().StorageClasses().Create(y.Context(), class.DeepCopy(), metav1.CreateOptions{}); err != nil {
		y.T.Fatal(err)
	}
}

// diskVolumes are the volumes of the machine's claims, by their names.
func diskVolumes(y *fixture.Machines) map[string]types.UID {
	y.T.Helper()
	out := map[string]types.UID{}
	for _, name := range []string{"web-root", "web-data"} {
		out[y.WaitBound(name).Name] = y.ClaimUID(name)
	}
	return out
}

// TestRestoreKeepsDisks: while the volumes of a restore cannot be made, because its class is gone, or a LimitRange or a quota refuses it, the machine keeps its
// disks, running or not, and has them after the restore is withdrawn. A claim that another pod uses is left to it, and the pod is named.
// When everything is there the restore is complete, and of what it replaced nothing is left.
func TestRestoreKeepsDisks(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	close(y.Gate.Open)
	text, err := os.ReadFile("../../../examples/vm-claims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	class := copiedClass(y)
	y.Apply(strings.NewReplacer("storage: 1Gi", "storage: 320Mi", "http://images.example.org/guest.qcow2", y.GuestURL,
		"storageClassName: localdisk", "storageClassName: "+class.Name).Replace(string(text)))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "web"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	tell(y, vm, "write data 0 1048576 1", "")
	y.SnapshotMachine("online", "web")
	tell(y, vm, "write data 0 1048576 7", "")
	before := diskVolumes(y)

	y.SetRunStrategy(vm, kubevirt.RunHalted)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	if err := y.Client.StorageV1().StorageClasses().Delete(t.Context(), class.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	y.Apply(fixture.RestoreYAML)
	restoreSays(y, fmt.Sprintf("StorageClass %q of PersistentVolumeClaim web-root does not exist", class.Name))
	y.SetRunStrategy(vm, kubevirt.RunAlways)
	y.Wait("the machine to say that it waits for the restore", time.Minute, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
			return false, err.Error()
		}
		said := fmt.Sprint(vm.Status.Conditions)
		return strings.Contains(said, "VirtualMachineRestore back: a volume cannot be made") && vm.Status.PrintableStatus == kubevirt.StatusStopped, said
	})
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypePersistentVolumeClaim, Max: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Mi")}}}}}
	if _, err := y.Client.CoreV1().LimitRanges(y.Namespace).Create(t.Context(), limits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	makeClass(y, class) // it goes on, to the next obstacle
	restoreSays(y, "maximum storage usage per PersistentVolumeClaim is 100Mi")
	withdrawRestore(y)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	tell(y, vm, "verify data 0 1048576 7", "same")
	if now := diskVolumes(y); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("its disks were %v and are %v", before, now)
	}

	if err := y.Client.CoreV1().LimitRanges(y.Namespace).Delete(t.Context(), limits.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "tight"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("700Mi")}}}
	if _, err := y.Client.CoreV1().ResourceQuotas(y.Namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	y.Apply(fixture.RestoreYAML)
	restoreSays(y, "exceeded quota: tight")
	y.WaitStatus(vm, kubevirt.StatusRunning, time.Second) // it is to be stopped, and is not before its volumes are there
	reader := y.Start(framework.Pod{Name: "reader", Script: "sleep 3600", Claims: []string{"web-data"}})
	y.WaitRunning(reader.Name)
	if err := y.Client.CoreV1().ResourceQuotas(y.Namespace).Delete(t.Context(), quota.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	restoreSays(y, "Pod reader uses PersistentVolumeClaim web-data")
	if now := diskVolumes(y); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("its disks were %v and are %v", before, now)
	}
	y.Delete(reader.Name)
	y.WaitRestored("back")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	tell(y, vm, "verify data 0 1048576 1", "same")
	for volume := range before {
		y.Wait("old volume "+volume+" to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
			pv, err := y.Client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(pv.Status.Phase, pv.Spec.PersistentVolumeReclaimPolicy, err)
		})
	}
	claims, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "berth.dev/staged-for"})
	if err != nil || len(claims.Items) > 0 {
		t.Errorf("claims of the restore are left: %v, %v", claims, err)
	}
}
