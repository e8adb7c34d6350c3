package watch

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backup "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshot "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/status"
	"github.com/berth-vm/berth/internal/virtctl/web/view"
)

// kind is a kind that is watched.
type kind struct {
	group    schema.GroupVersion
	resource string
	cluster  bool // it has no namespaces
	example  runtime.Object
}

var schemes = []func(*runtime.Scheme) error{
	corev1.AddToScheme, storagev1.AddToScheme, kubevirt.AddToScheme, snapshot.AddToScheme, backup.AddToScheme, accessv1.AddToScheme, cdiv1.AddToScheme,
}

var watched = []kind{
	{kubevirt.GroupVersion, "virtualmachines", false, &kubevirt.VirtualMachine{}},
	{kubevirt.GroupVersion, "virtualmachineinstances", false, &kubevirt.VirtualMachineInstance{}},
	{cdiv1.SchemeGroupVersion, "datavolumes", false, &cdiv1.DataVolume{}},
	{cdiv1.SchemeGroupVersion, "datasources", false, &cdiv1.DataSource{}},
	{cdiv1.SchemeGroupVersion, "dataimportcrons", false, &cdiv1.DataImportCron{}},
	{cdiv1.SchemeGroupVersion, "storageprofiles", true, &cdiv1.StorageProfile{}},
	{snapshot.GroupVersion, "virtualmachinesnapshots", false, &snapshot.VirtualMachineSnapshot{}},
	{snapshot.GroupVersion, "virtualmachinerestores", false, &snapshot.VirtualMachineRestore{}},
	{backup.GroupVersion, "virtualmachinebackups", false, &backup.VirtualMachineBackup{}},
	{backup.GroupVersion, "virtualmachinebackuptrackers", false, &backup.VirtualMachineBackupTracker{}},
	{accessv1.GroupVersion, "machineschedules", false, &accessv1.MachineSchedule{}},
	{corev1.SchemeGroupVersion, "persistentvolumeclaims", false, &corev1.PersistentVolumeClaim{}},
	{corev1.SchemeGroupVersion, "persistentvolumes", true, &corev1.PersistentVolume{}},
	{corev1.SchemeGroupVersion, "pods", false, &corev1.Pod{}},
	{corev1.SchemeGroupVersion, "nodes", true, &corev1.Node{}},
	{storagev1.SchemeGroupVersion, "storageclasses", true, &storagev1.StorageClass{}},
	{storagev1.SchemeGroupVersion, "csistoragecapacities", false, &storagev1.CSIStorageCapacity{}},
}

// slim drops what the page never shows: of a cluster with thousands of objects it is most of the memory.
func slim(object any) (any, error) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return gone, nil
	}
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
		if a := m.GetAnnotations(); a[corev1.LastAppliedConfigAnnotation] != "" {
			delete(a, corev1.LastAppliedConfigAnnotation)
		}
	}
	switch o := object.(type) {
	case *corev1.Pod:
		slimPod(o)
	case *corev1.Node:
		o.Status.Images, o.Status.VolumesAttached, o.Status.VolumesInUse = nil, nil, nil
	case *kubevirt.VirtualMachine:
		if o.Spec.Template != nil {
			slimVolumes(o.Spec.Template.Spec.Volumes)
		}
	case *kubevirt.VirtualMachineInstance:
		slimVolumes(o.Spec.Volumes)
	}
	return object, nil
}

// slimVolumes drops what cloud-init in the guest reads, which may be large and is no one else's business.
func slimVolumes(volumes []kubevirt.Volume) {
	for i := range volumes {
		for _, c := range []*kubevirt.CloudInitSource{volumes[i].CloudInitNoCloud, volumes[i].CloudInitConfigDrive} {
			if c != nil {
				*c = kubevirt.CloudInitSource{}
			}
		}
	}
}

func slimPod(p *corev1.Pod) {
	claims := p.Spec.Volumes[:0:0]
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claims = append(claims, v)
		}
	}
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Volumes: claims}
	for _, all := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range all {
			all[i] = corev1.ContainerStatus{Name: all[i].Name, State: all[i].State, RestartCount: all[i].RestartCount}
		}
	}
}

// Objects returns the objects as they are now. They are shared and must not be changed.
func (s *Store) Objects() *view.Objects {
	o := &view.Objects{
		Objects: status.Objects{
			Machines: of[*kubevirt.VirtualMachine](s, "virtualmachines"), Instances: of[*kubevirt.VirtualMachineInstance](s, "virtualmachineinstances"),
			Volumes: of[*cdiv1.DataVolume](s, "datavolumes"), Pods: of[*corev1.Pod](s, "pods"), PVs: map[string]*corev1.PersistentVolume{},
		},
		Nodes: of[*corev1.Node](s, "nodes"), Classes: of[*storagev1.StorageClass](s, "storageclasses"),
		Profiles: of[*cdiv1.StorageProfile](s, "storageprofiles"), Capacities: of[*storagev1.CSIStorageCapacity](s, "csistoragecapacities"),
		Images: of[*cdiv1.DataSource](s, "datasources"), Crons: of[*cdiv1.DataImportCron](s, "dataimportcrons"),
		Snapshots: of[*snapshot.VirtualMachineSnapshot](s, "virtualmachinesnapshots"),
		Restores:  of[*snapshot.VirtualMachineRestore](s, "virtualmachinerestores"),
		Backups:   of[*backup.VirtualMachineBackup](s, "virtualmachinebackups"),
		Trackers:  of[*backup.VirtualMachineBackupTracker](s, "virtualmachinebackuptrackers"),
		Schedules: of[*accessv1.MachineSchedule](s, "machineschedules"),
		Speeds:    s.pace.speeds(s.now()), Missing: s.Missing(), Measured: s.Measured(),
	}
	if err := s.Lost(); err != nil {
		o.Lost = err.Error()
	}
	for _, c := range of[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims") {
		if kube.Somebodys(c) {
			o.Claims = append(o.Claims, c)
		}
	}
	for _, v := range of[*corev1.PersistentVolume](s, "persistentvolumes") {
		o.PVs[v.Name] = v
	}
	return o
}

func of[T any](s *Store, resource string) []T {
	informer := s.kinds[resource]
	if informer == nil {
		return nil
	}
	list := informer.GetStore().List()
	out := make([]T, 0, len(list))
	for _, object := range list {
		if typed, ok := object.(T); ok {
			out = append(out, typed)
		}
	}
	return out
}
