//go:build e2e

package e2e

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

	"github.com/berth-vm/berth/test/e2e/framework"
)

const clonePhase = "cdi.kubevirt.io/clonePhase"

// applyAll is one kubectl apply of everything.
func (b *bed) applyAll(objects ...client.Object) {
	b.T.Helper()
	var text strings.Builder
	for _, o := range objects {
		part, err := yaml.Marshal(o)
		b.must(err)
		text.WriteString("---\n" + string(part))
	}
	cmd := exec.CommandContext(b.Context(), "../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(b.T), "apply", "-f", "-")
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
			StorageClassName: &class, VolumeMode: &mode, Resources: request("64Mi"),
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
			StorageClassName: &class, VolumeMode: &mode, Resources: request("64Mi"),
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
	for _, class := range []string{classDiskImmediate, classImmediate} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			b, abroad := newBed(t), newBed(t)
			release := b.web.hold()
			defer release()
			golden := cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "golden"}}
			objects := []client.Object{
				dataVolume(b.Namespace, "golden", class, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.web.url + "/disk.img"}}),
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
			b.applyAll(objects...)
			b.WaitBound("golden")
			b.untilPhase("golden", cdiv1.ImportInProgress)
			for _, bed := range []*bed{b, abroad} {
				dv := bed.until("clone", "to wait for its source", func(dv *cdiv1.DataVolume) bool {
					return strings.Contains(message(dv), "still being filled by DataVolume golden")
				})
				if strings.Contains(message(dv), "doesn't exist") || dv.Status.Phase != cdiv1.Pending {
					t.Errorf("the clone is %s: %s", dv.Status.Phase, message(dv))
				}
			}
			b.untilClaim("by-copy", "to wait for its source", func(c *corev1.PersistentVolumeClaim) bool {
				return strings.Contains(c.Annotations[running], "still being filled") && c.Annotations[clonePhase] == "Pending"
			})
			if left := b.snapshots(t.Context()); len(left) != 0 {
				t.Errorf("snapshots of an empty disk: %v", left)
			}
			release()
			b.untilPhase("golden", cdiv1.Succeeded)
			b.untilPhase("clone", cdiv1.Succeeded)
			abroad.untilPhase("clone", cdiv1.Succeeded)
			for _, way := range ways {
				c := b.untilPopulated("by-" + way)
				if got := c.Annotations["cdi.kubevirt.io/cloneType"]; class == classDiskImmediate && got != way || got == "stream" {
					t.Errorf("%s was cloned by %s (%s)", c.Name, got, c.Annotations["cdi.kubevirt.io/cloneFallbackReason"])
				}
				if c.Annotations[clonePhase] != "Succeeded" {
					t.Errorf("the phase of %s is %s", c.Name, c.Annotations[clonePhase])
				}
				b.begins(c.Name, image(24))
			}
			abroad.clonedBy("clone", "stream")
			b.begins("clone", image(24))
			abroad.begins("clone", image(24))
		})
	}
}

// TestVolumeStatic: a volume that was kept and is reserved for a claim, as for disaster recovery, is taken as it is by a DataVolume
// that says so, whatever its source; one that does not say so leaves it alone, and asks.
func TestVolumeStatic(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.volume(volume{name: "disk", class: classImmediate, size: "64Mi"})
	b.untilPhase("disk", cdiv1.Succeeded)
	pv := b.WaitBound("disk").Name
	b.patchVolume(pv, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	})
	defer b.patchVolume(pv, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	before := b.web.requests()
	for _, next := range []struct {
		name string
		keep bool
		from cdiv1.DataVolumeSource
	}{
		{"not said", false, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.web.url + "/disk.img"}}},
		{"kept", true, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.web.url + "/none.img"}}},
		{"kept for an upload", true, cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}},
	} {
		b.must(client.IgnoreNotFound(b.kube.Delete(b.Context(), b.get("disk"))))
		b.Wait("the claim to be gone", patience, func(ctx context.Context) (bool, string) {
			err := b.kube.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: "disk"}, &corev1.PersistentVolumeClaim{})
			return client.IgnoreNotFound(err) == nil && err != nil, "it is there"
		})
		b.patchVolume(pv, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID, v.Spec.ClaimRef.ResourceVersion = "", "" })
		v := dataVolume(b.Namespace, "disk", classImmediate, next.from)
		if next.keep {
			v.Annotations = map[string]string{"cdi.kubevirt.io/storage.checkStaticVolume": ""}
		}
		b.create(v)
		if !next.keep {
			b.until("disk", "to ask what to do", func(dv *cdiv1.DataVolume) bool {
				return strings.Contains(message(dv), fmt.Sprintf("volume %s was reserved for it and may hold data", pv))
			})
			continue
		}
		got := b.untilPhase("disk", cdiv1.Succeeded)
		if got.Status.Progress != "N/A" || got.Annotations["cdi.kubevirt.io/storage.prePopulated"] != "disk" || !strings.Contains(message(got), "nothing was transferred") {
			t.Errorf("%s: progress %s, annotations %v, %s", next.name, got.Status.Progress, got.Annotations, message(got))
		}
		if bound := b.WaitBound("disk").Name; bound != pv {
			t.Errorf("%s: it is bound to %s, not %s", next.name, bound, pv)
		}
		b.begins("disk", image(24))
	}
	if now := b.web.requests(); now != before {
		t.Errorf("the source was asked %d times", now-before)
	}
}
