//go:build e2e

package virtctl

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestVirtctlCreatePVC is the third seed's create-pvc: a claim with a generated name, one that an import fills, and a
// clone of it that says nothing but its name.
func TestVirtctlCreatePVC(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	v := fixture.NewVirtctl(t, b.Env)

	out := v.Must("create-pvc", "--generate-name=my-pvc-", "--size=1Gi")
	name := regexp.MustCompile(`^PersistentVolumeClaim ` + b.Namespace + `/(my-pvc-[a-z0-9]+) created\n`).FindStringSubmatch(out)
	if name == nil {
		t.Fatalf("create-pvc says\n%s", out)
	}
	pvc := b.ReadClaim(name[1])
	if pvc.Spec.StorageClassName == nil || !strings.Contains(out, "  storageClassName "+*pvc.Spec.StorageClassName+": ") {
		t.Errorf("the class was chosen without a reason:\n%s", out)
	}
	if wait := v.Run("create-pvc", "--name=waits", "--size=1Gi", "--storage-class="+fixture.ClassWaits, "--wait"); wait.Code != 1 ||
		!strings.HasPrefix(wait.Err, "cannot wait for PersistentVolumeClaim in state WaitForFirstConsumer\n") {
		t.Errorf("a claim nobody uses: code %d\n%s%s", wait.Code, wait.Out, wait.Err)
	}

	if err := b.Kube.Create(b.Context(), &cdiv1.VolumeImportSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "my-import-source"},
		Spec: cdiv1.VolumeImportSourceSpec{Source: &cdiv1.ImportSourceType{
			HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.Web.URL + "/disk.img"}}},
	}); err != nil {
		t.Fatal(err)
	}
	imported := v.Must("create-pvc", "--name=my-pvc-", "--data-source-ref-kind=VolumeImportSource",
		"--data-source-ref-name=my-import-source", "--size=64Mi", "--storage-class="+fixture.ClassImmediate, "--wait")
	if !regexp.MustCompile(`\[=+\] 100\.00% 0s\n$`).MatchString(imported) {
		t.Errorf("no bar:\n%s", imported)
	}
	data := b.Web.Files["/disk.img"]
	size := diskSize(b, "my-pvc")
	b.Holds("my-pvc", data, size)

	if err := b.Kube.Create(b.Context(), &cdiv1.VolumeCloneSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "fedora"},
		Spec:       cdiv1.VolumeCloneSourceSpec{Source: corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "my-pvc"}},
	}); err != nil {
		t.Fatal(err)
	}
	cloned := v.Must("create-pvc", "--name=my-clone", "--data-source-ref-kind=VolumeCloneSource", "--data-source-ref-name=fedora")
	if want := fmt.Sprintf("the disk of %d in PersistentVolumeClaim %s/my-pvc", size, b.Namespace); !strings.Contains(cloned, want) {
		t.Errorf("the size does not come from the source:\n%s", cloned)
	}
	if got := b.BeginsWith("my-clone", data); got < size { // its claim is sure to hold the source's disk; the clone fills it
		t.Errorf("the clone's disk has %d bytes, its source's %d", got, size)
	}
}

// diskSize is how large the disk on a claim is, which is recorded just after the claim is bound.
func diskSize(b *fixture.Volumes, claim string) int64 {
	b.T.Helper()
	var size int64
	b.Wait("the size of the disk on claim "+claim, fixture.Patience, func(context.Context) (bool, string) {
		text := b.ReadClaim(claim).Annotations["berth.dev/disk-size"]
		_, err := fmt.Sscan(text, &size)
		return err == nil, fmt.Sprintf("%q", text)
	})
	return size
}
