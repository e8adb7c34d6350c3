//go:build e2e

package populate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// classPath behaves as rancher.io/local-path does: it waits for the first consumer and looks at no data source.
const classPath = "local-path"

// store is a kind of storage that a cluster may have.
type store struct {
	name, class string
	block       bool
}

// stores: static local volumes, a provisioner that looks at no data source, a CSI driver with files and with devices, and a class that binds at once.
var stores = []store{
	{"static", fixture.ClassStatic, false}, {"local-path", classPath, false}, {"files", fixture.ClassDisk, false}, {"devices", fixture.ClassDisk, true}, {"immediate", fixture.ClassImmediate, false},
}

// spec is of a claim in the store.
func (s store) spec() corev1.PersistentVolumeClaimSpec {
	mode := corev1.PersistentVolumeFilesystem
	if s.block {
		mode = corev1.PersistentVolumeBlock
	}
	return corev1.PersistentVolumeClaimSpec{StorageClassName: &s.class, VolumeMode: &mode, Resources: fixture.StorageRequest("128Mi"),
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
}

// templated is a machine whose one disk is a volumeClaimTemplate with a source.
func templated(y *fixture.Machines, name string, on store, ref corev1.TypedObjectReference) *kubevirt.VirtualMachine {
	vm, spec, group := y.TinyMachine(name), on.spec(), cdiv1.SchemeGroupVersion.Group
	ref.APIGroup = &group
	spec.DataSourceRef = &ref
	vm.Spec.VolumeClaimTemplates = []kubevirt.VolumeClaimTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: spec}}
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "root"}}}}
	return vm
}

// wrapped is a machine whose one disk is a dataVolumeTemplate.
func wrapped(y *fixture.Machines, name string, on store, source cdiv1.DataVolumeSource) *kubevirt.VirtualMachine {
	vm, spec := y.TinyMachine(name), on.spec()
	vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: name + "-root"}, Spec: cdiv1.DataVolumeSpec{Source: &source, PVC: &spec}}}
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: name + "-root"}}}}
	return vm
}

// TestStockClasses: machines run from the disk that they were to have, for each source, on each kind of storage that a cluster may have, in a claim of their
// own and in a DataVolume. One source is in another namespace, and the API server has no gate on.
func TestStockClasses(t *testing.T) {
	t.Parallel()
	for _, on := range stores {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			y := fixture.NewMachines(t)
			b, images := &fixture.Volumes{Env: y.Env, Kube: y.Kube}, fixture.NewVolumes(t)
			d := fixture.NewUploads(b)
			url := images.Web.URL + "/disk.img"
			importSource(images, "image", url)
			populate(images, populated{name: "golden", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
			images.CreateCloneSource("os", "golden")
			grantTo(images, y.Namespace)
			importSource(b, "image", url)
			importSource(b, "seed", url)
			populate(b, populated{name: "golden", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeImportSource", source: "seed"})
			b.CreateCloneSource("os", "golden")
			b.CreateObject(&cdiv1.VolumeUploadSource{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "door"}})
			for _, vm := range []*kubevirt.VirtualMachine{
				templated(y, "import", on, corev1.TypedObjectReference{Kind: cdiv1.VolumeImportSourceRef, Name: "image"}),
				templated(y, "upload", on, corev1.TypedObjectReference{Kind: cdiv1.VolumeUploadSourceRef, Name: "door"}),
				templated(y, "clone", on, corev1.TypedObjectReference{Kind: cdiv1.VolumeCloneSourceRef, Name: "os"}),
				templated(y, "abroad", on, corev1.TypedObjectReference{Kind: cdiv1.VolumeCloneSourceRef, Name: "os", Namespace: &images.Namespace}),
				wrapped(y, "dv-import", on, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}}),
				wrapped(y, "dv-upload", on, cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}),
				wrapped(y, "dv-clone", on, cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "golden", Namespace: y.Namespace}}),
			} {
				runsFrom(b, y, d, vm)
			}
			if on.class == fixture.ClassImmediate {
				neverConsumed(y)
			}
		})
	}
}

// runsFrom has a machine run from its one disk, which is fixture.DiskImage(24), or what is uploaded here if its name says that it waits for that.
func runsFrom(b *fixture.Volumes, y *fixture.Machines, d *fixture.Uploads, vm *kubevirt.VirtualMachine) {
	b.T.Helper()
	y.CreateMachine(vm)
	claim, data := vm.Name+"-root", fixture.DiskImage(24)
	if strings.HasSuffix(vm.Name, "upload") {
		data = fixture.DiskImage(8)
		d.UntilClaim(claim, "to be ready for its upload", func(c *corev1.PersistentVolumeClaim) bool {
			return c.Annotations["cdi.kubevirt.io/storage.pod.ready"] == "true"
		})
		d.Answers("200", "", d.RequestToken(claim), "/v1beta1/upload", "-T", d.WriteFile("disk.img", data))
	}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	if c := b.ReadClaim(claim); len(vm.Spec.VolumeClaimTemplates) > 0 && (c.Annotations[fixture.PodPhaseAnnotation] != string(corev1.PodSucceeded) || c.Spec.DataSourceRef == nil) {
		b.T.Errorf("%s: the machine runs, and its claim says %v", claim, c.Annotations)
	}
	b.BeginsWith(claim, data)
	if err := y.Kube.Delete(y.Context(), vm); err != nil { // there are few static volumes
		b.T.Fatal(err)
	}
}

// neverConsumed: no pod was made that only had claims bound, as the events of pods say.
func neverConsumed(y *fixture.Machines) {
	y.T.Helper()
	events, err := y.Client.CoreV1().Events(y.Namespace).List(y.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod"})
	if err != nil || len(events.Items) == 0 {
		y.T.Fatalf("events of pods: %v, %v", events.Items, err)
	}
	for _, e := range events.Items {
		if strings.Contains(e.InvolvedObject.Name, "consumer") {
			y.T.Errorf("pod %s: %s", e.InvolvedObject.Name, e.Message)
		}
	}
}
