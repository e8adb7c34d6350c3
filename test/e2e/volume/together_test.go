//go:build e2e

package volume

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

const clonePhase = "cdi.kubevirt.io/clonePhase"

// applyAll is one kubectl apply of everything.
func applyAll(b *fixture.Volumes, objects ...client.Object) {
	b.T.Helper()
	var text strings.Builder
	for _, o := range objects {
		part, err := yaml.Marshal(o)
		b.NoError(err)
		text.WriteString("---\n" + string(part))
	}
	cmd := exec.CommandContext(b.Context(), "../../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(b.T), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(text.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		b.T.Fatalf("kubectl apply: %v\n%s\n%s", err, out, text.String())
	}
}

// dataVolume is a DataVolume as a file has it.
func dataVolume(namespace, name, class string, source cdiv1.DataVolumeSource) *cdiv1.DataVolume {
	mode := corev1.PersistentVolumeFilesystem
	return &cdiv1.DataVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "DataVolume"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: cdiv1.DataVolumeSpec{Source: &source, PVC: &corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeMode: &mode, Resources: fixture.StorageRequest("64Mi"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		}},
	}
}

// wished is a claim that is to be cloned in that way.
func wished(namespace, name, class, way string) *corev1.PersistentVolumeClaim {
	mode, group := corev1.PersistentVolumeFilesystem, cdiv1.SchemeGroupVersion.Group
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"cdi.kubevirt.io/cloneType": way}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeMode: &mode, Resources: fixture.StorageRequest("64Mi"),
			AccessModes:   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: &group, Kind: "VolumeCloneSource", Name: "of-golden"},
		},
	}
}

// TestVolumeCloneAppliedWithItsSource: source and clones come with one kubectl apply, on every class that binds at once and in every
// way there is to clone. While the source is bound and not filled no clone is made of it, and each says why; in the end all hold what
// the source holds. A populated claim is cloned in the way it asks for.
func TestVolumeCloneAppliedWithItsSource(t *testing.T) {
	t.Parallel()
	for _, class := range []string{fixture.ClassDiskImmediate, fixture.ClassImmediate} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			b, abroad := fixture.NewVolumes(t), fixture.NewVolumes(t)
			release := b.Web.Hold()
			defer release()
			golden := cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "golden"}}
			objects := []client.Object{
				dataVolume(b.Namespace, "golden", class, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.Web.URL + "/disk.img"}}),
				dataVolume(b.Namespace, "clone", class, golden), dataVolume(abroad.Namespace, "clone", class, golden),
				&cdiv1.VolumeCloneSource{
					TypeMeta:   metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "VolumeCloneSource"},
					ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "of-golden"},
					Spec:       cdiv1.VolumeCloneSourceSpec{Source: corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "golden"}},
				},
			}
			ways := []string{"csi-clone", "snapshot", "copy"}
			for _, way := range ways {
				objects = append(objects, wished(b.Namespace, "by-"+way, class, way))
			}
			applyAll(b, objects...)
			b.WaitBound("golden")
			b.UntilPhase("golden", cdiv1.ImportInProgress)
			for _, bed := range []*fixture.Volumes{b, abroad} {
				dv := bed.Until("clone", "to wait for its source", func(dv *cdiv1.DataVolume) bool {
					return strings.Contains(fixture.ReadyMessageOf(dv), "still being filled by DataVolume golden")
				})
				if strings.Contains(fixture.ReadyMessageOf(dv), "doesn't exist") || dv.Status.Phase != cdiv1.Pending {
					t.Errorf("the clone is %s: %s", dv.Status.Phase, fixture.ReadyMessageOf(dv))
				}
			}
			b.UntilClaim("by-copy", "to wait for its source", func(c *corev1.PersistentVolumeClaim) bool {
				return strings.Contains(c.Annotations[fixture.RunningMessageAnnotation], "still being filled") && c.Annotations[clonePhase] == "Pending"
			})
			if left := snapshots(t.Context(), b); len(left) != 0 {
				t.Errorf("snapshots of an empty disk: %v", left)
			}
			release()
			b.UntilPhase("golden", cdiv1.Succeeded)
			b.UntilPhase("clone", cdiv1.Succeeded)
			abroad.UntilPhase("clone", cdiv1.Succeeded)
			for _, way := range ways {
				c := b.UntilPopulated("by-" + way)
				if got := c.Annotations["cdi.kubevirt.io/cloneType"]; class == fixture.ClassDiskImmediate && got != way || got == "stream" {
					t.Errorf("%s was cloned by %s (%s)", c.Name, got, c.Annotations["cdi.kubevirt.io/cloneFallbackReason"])
				}
				if c.Annotations[clonePhase] != "Succeeded" {
					t.Errorf("the phase of %s is %s", c.Name, c.Annotations[clonePhase])
				}
				b.BeginsWith(c.Name, fixture.DiskImage(24))
			}
			abroad.ClonedBy("clone", "stream")
			b.BeginsWith("clone", fixture.DiskImage(24))
			abroad.BeginsWith("clone", fixture.DiskImage(24))
		})
	}
}

// TestVolumeStatic: a volume that was kept and is reserved for a claim, as for disaster recovery, is taken as it is by a DataVolume
// that says so, whatever its source; one that does not say so leaves it alone, and asks.
func TestVolumeStatic(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	b.CreateVolume(fixture.Volume{Name: "disk", Class: fixture.ClassImmediate, Size: "64Mi"})
	b.UntilPhase("disk", cdiv1.Succeeded)
	pv := b.WaitBound("disk").Name
	b.ChangePersistentVolume(pv, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	})
	defer b.ChangePersistentVolume(pv, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	before := b.Web.Requests()
	for _, next := range []struct {
		name string
		keep bool
		from cdiv1.DataVolumeSource
	}{
		{"not said", false, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.Web.URL + "/disk.img"}}},
		{"kept", true, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.Web.URL + "/none.img"}}},
		{"kept for an upload", true, cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}},
		{"kept for a clone whose source is gone", true, cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "gone"}}},
	} {
		b.NoError(client.IgnoreNotFound(b.Kube.Delete(b.Context(), b.ReadVolume("disk"))))
		b.Wait("the claim to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
			err := b.Kube.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: "disk"}, &corev1.PersistentVolumeClaim{})
			return client.IgnoreNotFound(err) == nil && err != nil, "it is there"
		})
		b.ChangePersistentVolume(pv, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID, v.Spec.ClaimRef.ResourceVersion = "", "" })
		v := dataVolume(b.Namespace, "disk", fixture.ClassImmediate, next.from)
		if next.keep {
			v.Annotations = map[string]string{"cdi.kubevirt.io/storage.checkStaticVolume": ""}
		}
		b.CreateObject(v)
		if !next.keep {
			b.Until("disk", "to ask what to do", func(dv *cdiv1.DataVolume) bool {
				return strings.Contains(fixture.ReadyMessageOf(dv), fmt.Sprintf("volume %s was reserved for it and may hold data", pv))
			})
			continue
		}
		got := b.UntilPhase("disk", cdiv1.Succeeded)
		if got.Status.Progress != "N/A" || got.Annotations["cdi.kubevirt.io/storage.prePopulated"] != "disk" || !strings.Contains(fixture.ReadyMessageOf(got), "nothing was transferred") {
			t.Errorf("%s: progress %s, annotations %v, %s", next.name, got.Status.Progress, got.Annotations, fixture.ReadyMessageOf(got))
		}
		if bound := b.WaitBound("disk").Name; bound != pv {
			t.Errorf("%s: it is bound to %s, not %s", next.name, bound, pv)
		}
		b.BeginsWith("disk", fixture.DiskImage(24))
	}
	if now := b.Web.Requests(); now != before {
		t.Errorf("the source was asked %d times", now-before)
	}
}
