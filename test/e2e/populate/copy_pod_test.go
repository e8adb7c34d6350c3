//go:build e2e

package populate

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestCopyPod is the stand-alone pod of the examples: it copies the disk in a container image into its claim, and ends. The registry has a certificate
// of its own.
func TestCopyPod(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	host := pushDisk(b, "/disks/fedora:latest", fixture.DiskImage(24))
	text := fixture.Example(t, "copy-pod.yaml", "quay.io/containerdisks/fedora:latest", host+"/disks/fedora:latest", "storage: 6Gi", "storage: 64Mi",
		"--quiet]", "--quiet, --ca=/ca]", "mountPath: /data}\n", "mountPath: /data}\n        - {name: roots, mountPath: /ca}\n",
		"  volumes:\n", "  volumes:\n    - name: roots\n      configMap: {name: roots}\n")
	applied(b, text)
	b.WaitPhase("copy", corev1.PodSucceeded)
	if out := b.Output("copy"); !strings.Contains(out, "24.0 MiB disk") {
		t.Errorf("the pod says %s", out)
	}
	b.Delete("copy")
	b.BeginsWith("copied", fixture.DiskImage(24))
}

// TestContainerVolumeFilled: the containers of the example make claims that are filled: one is copied from a container image, one is uploaded. The
// machine waits for both.
func TestContainerVolumeFilled(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	b := &fixture.Volumes{Env: y.Env, Kube: y.Kube}
	d := fixture.NewUploads(b)
	host := pushDisk(b, "/disks/fedora:latest", fixture.DiskImage(24))
	y.Apply(fixture.Example(t, "container-volume/filled.yaml", `"docker://quay.io/containerdisks/fedora:latest"`, `"docker://`+host+`/disks/fedora:latest"`+"\n      certConfigMap: roots",
		"size: 6Gi", "size: 128Mi", "size: 1Gi", "size: 128Mi", "/usr/bin/claim, -source", "/usr/bin/claim, -class, "+fixture.ClassDisk+", -source"))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "filled"}}
	claims := map[string]string{}
	for _, volume := range []string{"copied", "sent"} {
		y.Wait("the claim of volume "+volume, fixture.BootPatience, func(ctx context.Context) (bool, string) {
			if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
				return false, err.Error()
			}
			c := y.MadeOf(ctx, vm, volume)
			if c == nil || c.Spec.Source == nil || c.Spec.Source.PVC == nil {
				return false, fixture.ReadyMessage(vm)
			}
			claims[volume] = c.Spec.Source.PVC.ClaimName
			return true, ""
		})
	}
	d.UntilClaim(claims["sent"], "to be ready for its upload", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["cdi.kubevirt.io/storage.pod.ready"] == "true"
	})
	d.Answers("200", "", d.RequestToken(claims["sent"]), "/v1beta1/upload", "-T", d.WriteFile("disk.img", fixture.DiskImage(8)))
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "serial=copied")
	y.GuestSays(vm, "serial=sent")
	b.BeginsWith(claims["copied"], fixture.DiskImage(24))
	b.BeginsWith(claims["sent"], fixture.DiskImage(8))
}
