//go:build e2e

package populate

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/config/library"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// pushDisk puts a container disk into a registry of its own and returns the registry's host.
func pushDisk(b *fixture.Volumes, image string, disk []byte) string {
	b.T.Helper()
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	b.NoError(w.WriteHeader(&tar.Header{Name: "disk/disk.img", Mode: 0o440, Uid: 107, Gid: 107, Size: int64(len(disk)), Typeflag: tar.TypeReg}))
	_, err := w.Write(disk)
	b.NoError(err)
	b.NoError(w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil })
	b.NoError(err)
	img, err := mutate.AppendLayers(empty.Image, layer)
	b.NoError(err)
	url, web := b.ServeSecurely(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	host := strings.TrimPrefix(url, "https://")
	to, err := name.ParseReference(host + image)
	b.NoError(err)
	b.NoError(remote.Write(to, img, remote.WithTransport(web.Transport)))
	return host
}

// settle changes the CDI resource, and puts it back when the test ends.
func settle(b *fixture.Volumes, change func(*cdiv1.CDI)) {
	b.T.Helper()
	ctx := context.WithoutCancel(b.Context())
	update := func(change func(*cdiv1.CDI)) {
		b.NoError(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			var now cdiv1.CDI
			if err := b.Kube.Get(ctx, types.NamespacedName{Name: "cdi"}, &now); err != nil {
				return err
			}
			change(&now)
			return b.Kube.Update(ctx, &now)
		}))
	}
	var before cdiv1.CDI
	b.NoError(b.Kube.Get(ctx, types.NamespacedName{Name: "cdi"}, &before))
	b.T.Cleanup(func() {
		update(func(c *cdiv1.CDI) { c.Spec, c.Annotations = *before.Spec.DeepCopy(), before.Annotations })
	})
	update(change)
}

// installLibrary applies the library as it is shipped, and removes it when the test ends.
func installLibrary(b *fixture.Volumes) {
	b.T.Helper()
	run := func(verb ...string) {
		args := append([]string{"--kubeconfig", framework.Kubeconfig(b.T)}, verb...)
		for _, f := range []string{"namespace", "view", "images", "instancetypes", "preferences"} {
			args = append(args, "-f", filepath.Join("..", "..", "..", "config", "library", f+".yaml"))
		}
		if out, err := exec.CommandContext(context.WithoutCancel(b.Context()), "../../../bin/kubectl", args...).CombinedOutput(); err != nil {
			b.T.Errorf("kubectl %v: %v\n%s", verb, err, out)
		}
	}
	b.T.Cleanup(func() { run("delete", "--ignore-not-found", "--timeout=120s") })
	run("apply", "--server-side", "--validate=strict")
}

// TestLibrary: the library is installed on a cluster whose registry has a mirror. One label lets a namespace use its images, and virtctl create vm --image needs
// nothing else: the machine has a disk of the image, and the instance type and preference of its labels. The mirror is for a registry that
// no other test reads from, so they may run meanwhile; those that change the CDI resource too do not.
func TestLibrary(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	b := &fixture.Volumes{Env: y.Env, Kube: y.Kube}
	v := fixture.NewVirtctl(t, y.Env)
	host := pushDisk(b, "/disks/debian:13", fixture.DiskImage(24))
	settle(b, func(c *cdiv1.CDI) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, "berth.dev/registry-mirrors", "quay.io/containerdisks="+host+"/disks")
		if c.Spec.Config == nil {
			c.Spec.Config = &cdiv1.CDIConfigSpec{}
		}
		c.Spec.Config.InsecureRegistries = append(c.Spec.Config.InsecureRegistries, host)
	})
	installLibrary(b)
	b.Wait("image debian", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		var d cdiv1.DataSource
		err := b.Kube.Get(ctx, types.NamespacedName{Namespace: library.Namespace, Name: "debian"}, &d)
		ready := len(d.Status.Conditions) > 0 && d.Status.Conditions[0].Status == corev1.ConditionTrue
		return err == nil && ready && d.Labels["instancetype.kubevirt.io/default-preference"] == "debian", fmt.Sprintf("%v %+v %v", err, d.Status, d.Labels)
	})

	populate(b, populated{name: "early", class: fixture.ClassImmediate, size: "6Gi", kind: cdiv1.DataVolumeDataSource, source: "debian", from: library.Namespace})
	b.ClaimSays("early", "no ReferenceGrant in namespace "+library.Namespace)
	label := fmt.Sprintf(`{"metadata":{"labels":{"images.berth.dev/%s":"allowed"}}}`, library.Namespace)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: y.Namespace}}
	b.NoError(b.Kube.Patch(b.Context(), space, client.RawPatch(types.MergePatchType, []byte(label))))
	b.UntilPopulated("early")
	b.BeginsWith("early", fixture.DiskImage(24))

	fixture.ApplyYAML(y, v.Must("create", "vm", "--name=web", "--image=debian", "--instancetype=u1.micro", "--termination-grace-period=0"))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "web"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	b.NoError(b.Kube.Get(b.Context(), client.ObjectKeyFromObject(vm), vm))
	if p := vm.Status.PreferenceRef; p == nil || p.Name != "debian" {
		t.Errorf("its preference is %+v", p)
	}
	if i := fixture.OnlyInstance(y); i.Spec.Domain.Memory == nil || i.Spec.Domain.Memory.Guest.String() != "1Gi" {
		t.Errorf("its memory is %+v", i.Spec.Domain.Memory)
	}
	b.BeginsWith("web-root", fixture.DiskImage(24))
	b.NoError(b.Kube.Delete(b.Context(), vm))

	stream := v.Must("create", "stream", "--name=golden", "quay.io/containerdisks/debian:13")
	if !strings.Contains(stream, host+"/disks/debian:13") {
		t.Errorf("the stream reads from elsewhere:\n%s", stream)
	}
}
