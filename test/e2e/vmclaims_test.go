//go:build e2e

package e2e

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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
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

// apply applies YAML as a GitOps tool does, and returns the generation of every object.
func (y *yard) apply(text string) map[string]int64 {
	y.T.Helper()
	out := map[string]int64{}
	for doc := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			y.T.Fatal(err)
		}
		if u.GetKind() != "PersistentVolume" {
			u.SetNamespace(y.Namespace)
		}
		// Not forced: that somebody else changed what is applied is a conflict, and fails.
		if err := y.kube.Apply(y.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("gitops")); err != nil {
			y.T.Fatalf("apply %s %s: %v", u.GetKind(), u.GetName(), err)
		}
		out[u.GetKind()+" "+u.GetName()] = u.GetGeneration()
	}
	return out
}

// tell types a line on the guest's console, as soon as it reads any, and waits for its answer.
func (y *yard) tell(vm *kubevirt.VirtualMachine, line, answer string) {
	y.T.Helper()
	y.guestSays(vm, "berth-guest: ready")
	_, launchers := y.pods(y.Context(), vm)
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
	y.guestSays(vm, "berth-guest: "+line+": "+answer)
}

// counted counts the requests that reach the images.
func (y *yard) counted() *atomic.Int64 {
	n := &atomic.Int64{}
	files := y.gate.files
	y.gate.files = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	y := newYard(t)
	requests := y.counted()
	text := strings.Replace(proposal, "https://download.cirros-cloud.net/0.4.0/cirros-0.4.0-x86_64-disk.img", y.url, 1)
	first := y.apply(text)
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "cirros"}}
	const disk = "cirros-cirros-pvc"

	// The image does not come yet. The launcher is there all the same: it is what the scheduler chose the node for.
	y.Wait("a launcher and a node for the claim", patience, func(ctx context.Context) (bool, string) {
		_, launchers := y.pods(ctx, vm)
		c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(ctx, disk, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		node := c.Annotations["volume.kubernetes.io/selected-node"]
		return len(launchers) == 1 && node != "" && c.Status.Phase == corev1.ClaimPending, fmt.Sprintf("%d launchers, node %q, %s", len(launchers), node, c.Status.Phase)
	})
	y.status(vm, kubevirt.StatusProvisioning, patience)
	if !strings.Contains(why(vm), "PersistentVolumeClaim cirros-cirros-pvc is being filled from VolumeImportSource my-import-source") {
		t.Errorf("it says: %s", why(vm))
	}
	close(y.gate.open)
	y.status(vm, kubevirt.StatusRunning, boot)
	instance := &kubevirt.VirtualMachineInstance{}
	if err := y.kube.Get(t.Context(), client.ObjectKeyFromObject(vm), instance); err != nil {
		t.Fatal(err)
	}
	if got := instance.Spec.Volumes[0].PersistentVolumeClaim.ClaimName; got != disk {
		t.Errorf("the instance's claim is %s", got)
	}
	y.guestSays(vm, "disk vda bus=virtio")
	y.tell(vm, "write data 0 1048576 3", "")
	if again := y.apply(text); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("applied again: generations were %v and are %v", first, again)
	}

	y.backUpAndRestore(vm, disk, text, requests)
}

// backUpAndRestore saves the claim as kubectl does, deletes the machine with everything it owns but the volume, and brings
// both back.
func (y *yard) backUpAndRestore(vm *kubevirt.VirtualMachine, disk, text string, requests *atomic.Int64) {
	y.T.Helper()
	t, claims := y.T, y.Client.CoreV1().PersistentVolumeClaims(y.Namespace)
	pv := y.WaitBound(disk)
	y.patchVolume(pv.Name, `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	saved, err := claims.Get(t.Context(), disk, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := requests.Load()
	if err := y.kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	y.Wait("the machine and its claim to be gone", boot, func(ctx context.Context) (bool, string) {
		list, err := claims.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, fmt.Sprint(err)
	})
	y.patchVolume(pv.Name, `{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	// What a backup tool keeps of an object: not who owned it, nor that it was bound.
	saved.ObjectMeta = metav1.ObjectMeta{Name: saved.Name, Labels: saved.Labels, Annotations: saved.Annotations}
	delete(saved.Annotations, "pv.kubernetes.io/bind-completed")
	delete(saved.Annotations, "pv.kubernetes.io/bound-by-controller")
	saved.Status = corev1.PersistentVolumeClaimStatus{}
	if _, err := claims.Create(t.Context(), saved, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	y.apply(text)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.tell(vm, "verify data 0 1048576 3", "same")
	if after := requests.Load(); after != before {
		t.Errorf("the image was asked for %d more times", after-before)
	}
	y.patchVolume(pv.Name, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
}

func (y *yard) patchVolume(name, patch string) {
	y.T.Helper()
	_, err := y.Client.CoreV1().PersistentVolumes().Patch(y.Context(), name, "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{})
	if err != nil {
		y.T.Fatalf("change volume %s: %v", name, err)
	}
}
