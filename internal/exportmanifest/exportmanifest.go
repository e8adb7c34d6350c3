// Package exportmanifest writes the objects by which another cluster, or another namespace, makes an exported machine and its disks again.
//
// It does not know who serves them, or how.
package exportmanifest

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
)

// limit is how long the manifests of an export may be. They travel in an annotation, of which an object has 256 KiB in all.
const limit = 100 << 10

// Export is what is exported, and where it is served.
type Export struct {
	Name      string
	URL       string // of the server
	CA        string // the authority that signed its certificate, as PEM
	Authority string // the ConfigMap that is to have it
	Header    string // the Secret that is to have the token
	Disks     []Disk
	Machine   *kubevirt.VirtualMachine // that is exported, or was snapshotted; nil: a claim is
}

// Disk is one disk of an export.
type Disk struct {
	Name    string // what it is called in the export
	As      string // the claim that the machine knows it by
	Size    resource.Quantity
	Archive bool // it is a tree of files
}

// Objects returns the objects by which a cluster that reaches the server makes the machine and its disks again: the authority to trust, the
// volumes that are no templates of the machine, and the machine. nil: they are too long.
func (e Export) Objects() ([]json.RawMessage, error) {
	objects := []any{&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: e.Authority}, Data: map[string]string{"ca.pem": e.CA},
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
	if total > limit {
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
		if names.OfPeople(key) {
			metav1.SetMetaDataAnnotation(&vm.ObjectMeta, key, value)
		}
	}
	return vm
}

// fillTemplate has the machine's own template of the disk filled from the export; false: it has none.
func (e Export) fillTemplate(vm *kubevirt.VirtualMachine, d Disk) bool {
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
func (e Export) refill(d Disk) cdiv1.DataVolumeSpec {
	file := "disk.img.gz"
	var kind cdiv1.DataVolumeContentType
	if d.Archive {
		file, kind = "disk.tar.gz", cdiv1.DataVolumeArchive
	}
	return cdiv1.DataVolumeSpec{
		ContentType: kind,
		Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
			URL:           e.URL + "/volumes/" + d.Name + "/" + file,
			CertConfigMap: e.Authority, SecretExtraHeaders: []string{e.Header},
		}},
		Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: d.Size}}},
	}
}
