package render

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/exportmanifest"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
)

// RoleExport is the role of the server of an export.
const RoleExport = "virt-export-server"

// AnnExportCA is on the server of an export: the authority that signed its certificate, as PEM. It is not secret, so the Secret
// with the key is not read again.
const AnnExportCA = "berth.dev/export-ca"

// AnnExportManifests is on a server of an export that also serves manifests; a server of an earlier version serves none.
const AnnExportManifests = "berth.dev/export-manifests"

// Where the server has them.
const (
	ExportManifests      = "/internal/manifests/all"
	ExportHeaderManifest = "/internal/manifests/secret"
)

// ExportPort is the port of the server of an export, and exportServicePort the port of its Service.
const (
	ExportPort        = 8443
	exportServicePort = 443
)

// Where the server finds what it is given.
const (
	volumesDir   = "/volumes"
	exportTokens = "/var/run/berth/token" //nolint:gosec // G101: where a Secret is mounted
)

// ExportName is the name of the server of an export and of its Service.
func ExportName(export string) string { return hostname("virt-export-" + export) }

// Exported is one disk of an export.
type Exported struct {
	Disk
	Name    string // what it is called in the export
	As      string // the claim that the machine knows it by
	Size    resource.Quantity
	Content task.Content
}

// Export holds all inputs of the pod of an export's server.
type Export struct {
	Name, Namespace string // of the export
	UID             types.UID
	Owner           metav1.OwnerReference
	Labels          map[string]string // of the export, which its server has too
	Annotations     map[string]string
	Disks           []Exported
	Machine         *kubevirt.VirtualMachine // that is exported, or was snapshotted; nil: a claim is
	Keys, Token     string                   // Secrets
	CA              string
	Settings        Settings
}

// Pod is the server. It continues until it is deleted.
func (e Export) Pod() (*corev1.Pod, error) {
	t := task.Export{Version: task.Version, Listen: fmt.Sprintf(":%d", ExportPort), TLSDir: TLSDir, TokenDir: exportTokens}
	var disks []Disk
	for i, d := range e.Disks {
		dir, device := volumePlace(i)
		t.Volumes = append(t.Volumes, task.ExportedVolume{Name: d.Name, Path: d.path(dir, device, d.Content), Content: d.Content})
		disks = append(disks, d.Disk)
	}
	annotations := map[string]string{AnnExportCA: e.CA}
	var err error
	if t.Manifests, err = e.manifests().Objects(); err != nil {
		return nil, err
	}
	if t.Manifests != nil {
		annotations[AnnExportManifests], t.HeaderSecret = "true", e.manifests().Header
	}
	for key, value := range e.Annotations {
		if names.OfPeople(key) {
			annotations[key] = value
		}
	}
	pod, err := Worker{
		Name: ExportName(e.Name), Namespace: e.Namespace, Role: RoleExport, Owner: e.Owner, VolumeUID: e.UID, ClaimUID: e.UID,
		Command: exportVerb, Task: t, Listen: ExportPort, Annotations: annotations, Settings: e.Settings,
		Secrets: []Secret{{Name: e.Keys, Dir: TLSDir}, {Name: e.Token, Dir: exportTokens}},
	}.Pod()
	if err != nil {
		return nil, err
	}
	for key, value := range e.Labels {
		if _, ours := pod.Labels[key]; !ours && names.OfPeople(key) {
			pod.Labels[key] = value
		}
	}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	c := &pod.Spec.Containers[0]
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError // it leaves no report
	addVolumes(pod, disks)
	if len(disks) > 0 {
		holdsDisks(pod)
	}
	return pod, nil
}

// manifests are the objects by which the machine and its disks are made again elsewhere.
func (e Export) manifests() exportmanifest.Export {
	out := exportmanifest.Export{Name: e.Name, URL: ExportURL(e.Namespace, e.Name), CA: e.CA, Machine: e.Machine,
		Authority: fit("export-ca-cm-" + e.Name), Header: fit("header-secret-" + e.Name)}
	for _, d := range e.Disks {
		out.Disks = append(out.Disks, exportmanifest.Disk{Name: d.Name, As: d.As, Size: d.Size, Archive: d.Content == task.Archive})
	}
	return out
}

// addVolumes has a worker read more disks, each at its volumePlace.
func addVolumes(pod *corev1.Pod, disks []Disk) {
	for i := range disks {
		name := fmt.Sprintf("volume-%d", i)
		dir, device := volumePlace(i)
		attach(&pod.Spec.Containers[0], &disks[i], name, dir, device, true)
		pod.Spec.Volumes = append(pod.Spec.Volumes, claimVolume(name, &disks[i]))
		if disks[i].Block {
			pod.Spec.SecurityContext.SupplementalGroups = []int64{diskGroup}
		}
	}
}

// volumePlace returns the path of the i-th disk that a worker reads, as a mounted filesystem and as a device.
func volumePlace(i int) (dir, device string) {
	return path.Join(volumesDir, fmt.Sprint(i)), fmt.Sprintf("/dev/berth-volume-%d", i)
}

// Service leads to the server.
func (e Export) Service() *corev1.Service {
	return serviceTo(RoleExport, e.UID, metav1.ObjectMeta{Name: ExportName(e.Name), Namespace: e.Namespace, OwnerReferences: []metav1.OwnerReference{e.Owner}})
}

// serviceTo leads to the worker of a role that serves an object.
func serviceTo(role string, of types.UID, meta metav1.ObjectMeta) *corev1.Service {
	meta.Labels = Labels(role)
	return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Selector: map[string]string{LabelComponent: role, LabelVolumeUID: string(of)},
		Ports:    []corev1.ServicePort{{Name: "export", Port: exportServicePort, TargetPort: intstr.FromInt32(ExportPort)}},
	}}
}

// ExportHost is the name of the server in the cluster, which its certificate is for.
func ExportHost(namespace, export string) string {
	return ExportName(export) + "." + namespace + ".svc"
}

// ExportURL returns the address of an export's server.
func ExportURL(namespace, export string) string { return "https://" + ExportHost(namespace, export) }

// ExportClaim is the name of the claim that a volume of a snapshot is read from while it is exported.
func ExportClaim(export types.UID, volume string) string {
	return fit("export-" + string(export) + "-" + volume)
}
