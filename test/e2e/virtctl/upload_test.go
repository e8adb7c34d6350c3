//go:build e2e

package virtctl

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// proxyURL is where the cluster says uploads go in.
func proxyURL(b *fixture.Volumes) string {
	b.T.Helper()
	var config cdiv1.CDIConfig
	if err := b.Kube.Get(b.Context(), types.NamespacedName{Name: "config"}, &config); err != nil {
		b.T.Fatal(err)
	}
	if config.Status.UploadProxyURL == nil {
		b.T.Fatal("the cluster does not say where uploads go in")
	}
	return *config.Status.UploadProxyURL
}

// seedPod is the pod that binds a claim, as CDI's page on local storage has it, without its node selector.
const seedPod = `
apiVersion: v1
kind: Pod
metadata:
  name: consumer-$PVC
spec:
  volumes:
    - name: pod1-storage
      persistentVolumeClaim:
        claimName: $PVC
  containers:
  - name: test-pod-container
    image: busybox
    command: ['sh', '-c', 'echo "Will bind the pvc!" ']
    volumeMounts:
      - mountPath: /disk
        name: pod1-storage
`

// TestVirtctlUploadTranscript is the first seed's "Interaction with virtctl", word for word: the command on a held volume,
// its own consumer pod with and without a node selector, the command again, and the data seen by a pod.
func TestVirtctlUploadTranscript(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	v := fixture.NewVirtctl(t, b.Env)
	data := fixture.DiskImage(24)
	path, url := fixture.WriteFile(t, "fedora30.qcow2", data), proxyURL(b)
	for name, node := range map[string]string{"fedora-dv": "", "fedora-node": b.ReadyNodes()[2]} {
		command := []string{"image-upload", "dv", name, "--uploadproxy-url=" + url, "--image-path=" + path}
		head := fmt.Sprintf("DataVolume %s/%s created\nWaiting for PVC %s upload pod to be ready...\n", b.Namespace, name, name)

		held := v.Run(command...)
		first, advice, _ := strings.Cut(held.Err, "\n")
		if held.Code != 1 || held.Out != head || first != "cannot upload to DataVolume in state WaitForFirstConsumer" {
			t.Fatalf("a held volume: code %d\n%s%s", held.Code, held.Out, held.Err)
		}
		if held.Took > time.Minute {
			t.Errorf("a held volume was waited for: %s", held.Took)
		}
		for _, want := range []string{"--force-bind", "--node NAME", node, "--like-vm NAME", "a pod that uses the claim " + name} {
			if !strings.Contains(advice, want) {
				t.Errorf("the advice lacks %q:\n%s", want, advice)
			}
		}

		if owner := findClaim(b, name); owner != name {
			t.Errorf("the claim of %s, found as the seed finds it, is that of %q", name, owner)
		}
		pod := strings.ReplaceAll(seedPod, "$PVC", name)
		if node != "" {
			pod += "  nodeSelector:\n    kubernetes.io/hostname: " + node + "\n"
		}
		b.Kubectl("create", "-f", fixture.WriteFile(t, name+".yaml", []byte(pod)))
		pv := b.WaitBound(name)
		b.Kubectl("delete", "pod", "consumer-"+name)
		if at := framework.VolumeNode(pv); node != "" && at != node {
			t.Errorf("bound on %s, the consumer was to run on %s", at, node)
		}

		done := v.Run(command...)
		want := regexp.QuoteMeta(head+"Pod now ready\nUploading data to "+url+"\n\n") +
			` 24\.00 MiB / 24\.00 MiB \[=+\] 100\.00% 0s` + "\n\n" +
			regexp.QuoteMeta("Uploading data completed successfully, waiting for processing to complete, "+
				"you can hit ctrl-c without interrupting the progress\nProcessing completed successfully\n"+
				"Uploading "+path+" completed successfully\n")
		if done.Code != 0 || done.Err != "" || !regexp.MustCompile("^"+want+"$").MatchString(done.Out) {
			t.Fatalf("a bound volume: code %d\n%s%s", done.Code, done.Out, done.Err)
		}
		b.Holds(name, data, int64(len(data)))

		again := v.Run(command...)
		if again.Code != 1 || !strings.HasPrefix(again.Err, "PVC "+name+" already successfully imported/cloned/updated\nChoose another name") {
			t.Errorf("a filled volume: code %d\n%s%s", again.Code, again.Out, again.Err)
		}
	}
}

// findClaim is the name of a claim that belongs to a volume, looked for by its label and owner; empty if there is none.
func findClaim(b *fixture.Volumes, volume string) string {
	b.T.Helper()
	claims, err := b.Client.CoreV1().PersistentVolumeClaims(b.Namespace).List(b.Context(), metav1.ListOptions{LabelSelector: "app=containerized-data-importer"})
	if err != nil {
		b.T.Fatal(err)
	}
	for i := range claims.Items {
		if o := metav1.GetControllerOf(&claims.Items[i]); o != nil && o.Kind == "DataVolume" && o.Name == volume {
			return claims.Items[i].Name
		}
	}
	return ""
}

// TestVirtctlUploadBinds: virtctl binds a held volume itself, on a node, like a machine, anywhere; its consumer pod is
// gone afterwards, also when it is interrupted. Images of a format, of a compression and with holes arrive the same.
func TestVirtctlUploadBinds(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	v := fixture.NewVirtctl(t, b.Env)
	data := fixture.DiskImage(16)
	raw, node := fixture.WriteFile(t, "disk.img", data), b.ReadyNodes()[1]
	qcow2 := filepath.Join(t.TempDir(), "disk.qcow2")
	if out, err := exec.Command("qemu-img", "convert", "-c", "-O", "qcow2", raw, qcow2).CombinedOutput(); err != nil {
		t.Fatalf("make a qcow2 image: %v\n%s", err, out)
	}

	out := v.Must("image-upload", "dv", "on-node", "--image-path="+qcow2, "--node="+node, "--datasource", "--default-preference=linux")
	for _, want := range []string{"PVC on-node bound on node " + node + "\n", "completed successfully\nCreated a new DataSource "} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	noConsumers(b)
	if at := framework.VolumeNode(b.WaitBound("on-node")); at != node {
		t.Errorf("on-node is on %s, wanted %s", at, node)
	}

	machineWith(b, "like", "on-node")
	v.Must("image-upload", "dv", "beside", "--image-path="+raw, "--like-vm=like")
	if at := framework.VolumeNode(b.WaitBound("beside")); at != node {
		t.Errorf("beside is on %s, the machine's disk on %s", at, node)
	}

	interrupt(t, v, "image-upload", "dv", "picky", "--image-path="+raw, "--like-vm=nowhere")
	noConsumers(b)
	b.StaysPending("picky", time.Second)

	// A bare claim is filled through a VolumeUploadSource, and bound the same way.
	v.Must("image-upload", "pvc", "bare", "--image-path="+raw, "--force-bind")
	noConsumers(b)
	// What does not fit is refused with the numbers, before a volume is made for it if virtctl can tell, and the volume takes
	// something smaller afterwards.
	large := v.Run("image-upload", "dv", "small", "--image-path="+raw, "--size=8Mi", "--force-bind")
	if large.Code != 1 || large.Out != "" || !strings.HasPrefix(large.Err, "size 8Mi is too small: the disk in "+raw+" has 16777216 bytes\n") {
		t.Errorf("an image that is larger than its volume is to be: code %d\n%s%s", large.Code, large.Out, large.Err)
	}
	b.CreateObject(&cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "small"},
		Spec: cdiv1.DataVolumeSpec{
			Source:  &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}},
			Storage: &cdiv1.StorageSpec{Resources: fixture.StorageRequest("8Mi")},
		},
	})
	large = v.Run("image-upload", "dv", "small", "--image-path="+raw, "--force-bind")
	if large.Code != 1 || !strings.HasPrefix(large.Err, "unexpected return value 400, Saving stream failed: virtual image size 16777216 is larger") {
		t.Errorf("an image that does not fit: code %d\n%s%s", large.Code, large.Out, large.Err)
	}
	v.Must("image-upload", "dv", "small", "--image-path="+fixture.WriteFile(t, "small.img", data[:8*fixture.MiB]))
	// An archive becomes files.
	v.Must("image-upload", "dv", "files", "--archive-path="+fixture.WriteFile(t, "files.tar", hello(t)), "--size=16Mi", "--force-bind", "--insecure")
	if got := b.Run(framework.Pod{Name: "read", User: fixture.GuestUser, Claims: []string{"files"}, Script: "cat /files/etc/hello"}); got != "world" {
		t.Errorf("the archive's file holds %q", got)
	}
	b.Holds("small", data[:8*fixture.MiB], 8*fixture.MiB)
	b.Holds("on-node", data, int64(len(data)))
	b.Holds("beside", data, int64(len(data)))
	b.Holds("bare", data, 22*fixture.MiB) // its claim is as large as a small ext4 needs, and a claim that is taken as it is written is filled
}

// hello is an archive with one file.
func hello(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: "etc/hello", Mode: 0o644, Size: 5, Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write([]byte("world"))
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// noConsumers fails the test if a pod that virtctl made is left.
func noConsumers(b *fixture.Volumes) {
	b.T.Helper()
	pods, err := b.Client.CoreV1().Pods(b.Namespace).List(b.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=virtctl"})
	if err != nil {
		b.T.Fatal(err)
	}
	for _, p := range pods.Items {
		b.T.Errorf("consumer pod %s is left", p.Name)
	}
}

var machines = kubevirt.GroupVersion.WithResource("virtualmachines")

// machineWith makes a machine that is not started: with a disk, or with none and on no node of the cluster.
func machineWith(b *fixture.Volumes, name, claim string) {
	b.T.Helper()
	spec := map[string]any{"domain": map[string]any{"devices": map[string]any{}, "memory": map[string]any{"guest": "64Mi"}}}
	if claim != "" {
		spec["volumes"] = []any{map[string]any{"name": "disk", "dataVolume": map[string]any{"name": claim}}}
	} else {
		spec["nodeSelector"] = map[string]any{corev1.LabelHostname: "no-such-node"}
	}
	vm := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kubevirt.GroupVersion.String(), "kind": "VirtualMachine", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"runStrategy": "Halted", "template": map[string]any{"spec": spec}},
	}}
	if _, err := b.Dynamic.Resource(machines).Namespace(b.Namespace).Create(b.Context(), vm, metav1.CreateOptions{}); err != nil {
		b.T.Fatal(err)
	}
}

// interrupt runs a command until its consumer pod waits for a node, and presses ctrl-c.
func interrupt(t *testing.T, v *fixture.Virtctl, args ...string) {
	t.Helper()
	b := v.Env
	machineWith(&fixture.Volumes{Env: b}, "nowhere", "")
	cmd := exec.Command(fixture.VirtctlProgram, append(args, v.Args...)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.Wait("the consumer to wait for a node", fixture.Patience, func(ctx context.Context) (bool, string) {
		pods, err := b.Client.CoreV1().Pods(b.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=virtctl"})
		if err != nil {
			return false, err.Error()
		}
		return len(pods.Items) == 1 && len(pods.Items[0].Status.Conditions) > 0, fmt.Sprintf("%d pods", len(pods.Items))
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code says how it ended
	if cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("interrupted, it ended with %d:\n%s", cmd.ProcessState.ExitCode(), out.String())
	}
}
