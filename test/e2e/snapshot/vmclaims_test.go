//go:build e2e

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// proposal is the first example of the proposal, as it is written there but for the address of the image.
const proposal = `
apiVersion: cdi.kubevirt.io/v1beta1
kind: VolumeImportSource
metadata:
  name: my-import-source
spec:
  source:
      http:
         url: "https://download.cirros-cloud.net/0.4.0/cirros-0.4.0-x86_64-disk.img"
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: cirros
spec:
  running: true
  volumeClaimTemplates:
  - metadata:
      name: cirros-pvc
    spec:
      dataSourceRef:
        apiGroup: cdi.kubevirt.io
        kind: VolumeImportSource
        name: my-import-source
      resources:
        requests:
          storage: 1Gi
  template:
    spec:
      domain:
        devices: {}
      volumes:
      - persistentVolumeClaim:
          name: cirros-pvc
        name: cirros-disk
`

// tell types a line on the guest's console, as soon as it reads any, and waits for its answer.
func tell(y *fixture.Machines, vm *kubevirt.VirtualMachine, line, answer string) {
	y.T.Helper()
	y.GuestSays(vm, "berth-guest: ready")
	_, launchers := y.PodsOf(y.Context(), vm)
	if len(launchers) != 1 {
		y.T.Fatalf("machine %s has %d launchers", vm.Name, len(launchers))
	}
	url := y.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(y.Namespace).Name(launchers[0].Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "compute", Command: []string{"/usr/bin/launcher", "console"}, Stdin: true, Stdout: true},
			scheme.ParameterCodec).URL()
	exec, err := remotecommand.NewSPDYExecutor(y.Config, http.MethodPost, url)
	if err != nil {
		y.T.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(y.Context(), time.Minute)
	defer cancel()
	err = exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(line + "\n"), Stdout: &bytes.Buffer{}})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		y.T.Fatalf("type on the console: %v", err)
	}
	y.GuestSays(vm, "berth-guest: "+line+": "+answer)
}

// counted counts the requests that reach the images.
func counted(y *fixture.Machines) *atomic.Int64 {
	n := &atomic.Int64{}
	files := y.Gate.Files
	y.Gate.Files = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		files.ServeHTTP(w, r)
	})
	return n
}

// TestClaimsFirst takes the proposal's machine through its life: applied as written it boots, its room is held from the
// first moment, applying it again changes nothing, and after it was deleted and restored from a backup of its objects,
// the data is there and nothing is imported again.
func TestClaimsFirst(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	requests := counted(y)
	text := strings.Replace(proposal, "https://download.cirros-cloud.net/0.4.0/cirros-0.4.0-x86_64-disk.img", y.GuestURL, 1)
	first := y.Apply(text)
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "cirros"}}
	const disk = "cirros-cirros-pvc"

	// The image does not arrive yet. The launcher exists all the same: the scheduler chose the node for it.
	y.Wait("a launcher and a node for the claim", fixture.Patience, func(ctx context.Context) (bool, string) {
		_, launchers := y.PodsOf(ctx, vm)
		c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(ctx, disk, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		node := c.Annotations["volume.kubernetes.io/selected-node"]
		return len(launchers) == 1 && node != "" && c.Status.Phase == corev1.ClaimPending, fmt.Sprintf("%d launchers, node %q, %s", len(launchers), node, c.Status.Phase)
	})
	y.WaitStatus(vm, kubevirt.StatusProvisioning, fixture.Patience)
	if !strings.Contains(fixture.ReadyMessage(vm), "PersistentVolumeClaim cirros-cirros-pvc is being filled from VolumeImportSource my-import-source") {
		t.Errorf("it says: %s", fixture.ReadyMessage(vm))
	}
	close(y.Gate.Open)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	instance := &kubevirt.VirtualMachineInstance{}
	if err := y.Kube.Get(t.Context(), client.ObjectKeyFromObject(vm), instance); err != nil {
		t.Fatal(err)
	}
	if got := instance.Spec.Volumes[0].PersistentVolumeClaim.ClaimName; got != disk {
		t.Errorf("the instance's claim is %s", got)
	}
	y.GuestSays(vm, "disk vda bus=virtio")
	tell(y, vm, "write data 0 1048576 3", "")
	if again := y.Apply(text); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("applied again: generations were %v and are %v", first, again)
	}

	backUpAndRestore(y, vm, disk, text, requests)
}

// backUpAndRestore saves the claim as kubectl does, deletes the machine with everything it owns but the volume, and brings
// both back.
func backUpAndRestore(y *fixture.Machines, vm *kubevirt.VirtualMachine, disk, text string, requests *atomic.Int64) {
	y.T.Helper()
	t, claims := y.T, y.Client.CoreV1().PersistentVolumeClaims(y.Namespace)
	pv := y.WaitBound(disk)
	patchVolume(y, pv.Name, `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	saved, err := claims.Get(t.Context(), disk, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := requests.Load()
	if err := y.Kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	y.Wait("the machine and its claim to be gone", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		list, err := claims.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, fmt.Sprint(err)
	})
	patchVolume(y, pv.Name, `{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	// What a backup tool keeps of an object: not who owned it, nor that it was bound.
	saved.ObjectMeta = metav1.ObjectMeta{Name: saved.Name, Labels: saved.Labels, Annotations: saved.Annotations}
	delete(saved.Annotations, "pv.kubernetes.io/bind-completed")
	delete(saved.Annotations, "pv.kubernetes.io/bound-by-controller")
	saved.Status = corev1.PersistentVolumeClaimStatus{}
	if _, err := claims.Create(t.Context(), saved, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	y.Apply(text)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	tell(y, vm, "verify data 0 1048576 3", "same")
	if after := requests.Load(); after != before {
		t.Errorf("the image was asked for %d more times", after-before)
	}
	patchVolume(y, pv.Name, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
}

func patchVolume(y *fixture.Machines, name, patch string) {
	y.T.Helper()
	_, err := y.Client.CoreV1().PersistentVolumes().Patch(y.Context(), name, "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{})
	if err != nil {
		y.T.Fatalf("change volume %s: %v", name, err)
	}
}
