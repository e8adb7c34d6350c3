package render

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/task"
)

// AnnExportManifests is on a server of an export that also serves manifests; a server of an earlier version serves none.
const AnnExportManifests = "berth.dev/export-manifests"

// Where the server has them.
const (
	ExportManifests      = "/internal/manifests/all"
	ExportHeaderManifest = "/internal/manifests/secret"
)

// manifestLimit is how long the manifests of an export may be. They travel in an annotation, of which an object has 256 KiB in all.
const manifestLimit = 100 << 10

// ExportURL returns the address of an export's server.
func ExportURL(namespace, export string) string { return "https://" + ExportHost(namespace, export) }

func exportAuthority(export string) string { return fit("export-ca-cm-" + export) }
func exportHeader(export string) string    { return fit("header-secret-" + export) }

// manifests are the objects by which a cluster that reaches the server makes the machine and its disks again: the authority to trust, the
// volumes that are no templates of the machine, and the machine. nil: they are too long.
func (e Export) manifests() ([]json.RawMessage, error) {
	objects := []any{&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: exportAuthority(e.Name)}, Data: map[string]string{"ca.pem": e.CA},
	}}
	vm := e.machine()
	for _, d := range e.Disks {
		if vm == nil || !e.fillTemplate(vm, d) {
			objects = append(objects, &cdiv1.DataVolume{
				TypeMeta:   metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "DataVolume"},
				ObjectMeta: metav1.ObjectMeta{Name: d.As}, Spec: e.refill(d),
			})
		}
	}
	if vm != nil {
		objects = append(objects, vm)
	}
	var out []json.RawMessage
	total := 0
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("write the manifests of export %s: %w", e.Name, err)
		}
		out, total = append(out, text), total+len(text)
	}
	if total > manifestLimit {
		return nil, nil
	}
	return out, nil
}

// machine is the machine without what is of this cluster only; nil: a claim is exported.
func (e Export) machine() *kubevirt.VirtualMachine {
	if e.Machine == nil {
		return nil
	}
	vm := &kubevirt.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: kubevirt.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Name: e.Machine.Name, Labels: e.Machine.Labels}, Spec: *e.Machine.Spec.DeepCopy(),
	}
	for key, value := range e.Machine.Annotations {
		if ofPeople(key) {
			metav1.SetMetaDataAnnotation(&vm.ObjectMeta, key, value)
		}
	}
	return vm
}

// fillTemplate has the machine's own template of the disk filled from the export; false: it has none.
func (e Export) fillTemplate(vm *kubevirt.VirtualMachine, d Exported) bool {
	for i := range vm.Spec.DataVolumeTemplates {
		t := &vm.Spec.DataVolumeTemplates[i]
		if t.ObjectMeta.Name == d.As {
			t.Spec = e.refill(d)
			return true
		}
	}
	return false
}

// refill is a volume that is imported from the export. Class, access and mode are those that the cluster has for it.
func (e Export) refill(d Exported) cdiv1.DataVolumeSpec {
	file := "disk.img.gz"
	var kind cdiv1.DataVolumeContentType
	if d.Content == task.Archive {
		file, kind = "disk.tar.gz", cdiv1.DataVolumeArchive
	}
	return cdiv1.DataVolumeSpec{
		ContentType: kind,
		Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
			URL:           ExportURL(e.Namespace, e.Name) + "/volumes/" + d.Name + "/" + file,
			CertConfigMap: exportAuthority(e.Name), SecretExtraHeaders: []string{exportHeader(e.Name)},
		}},
		Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: d.Size}}},
	}
}

// Size returns the capacity of a claim, or its request if it has none yet.
func Size(c *corev1.PersistentVolumeClaim) resource.Quantity {
	asked, has := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	if has.Cmp(asked) > 0 {
		return has
	}
	return asked
}
