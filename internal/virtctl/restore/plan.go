package restore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// plan is what is made.
type plan struct {
	moment  *backup.Manifest
	machine *kubevirt.VirtualMachine
	disks   []restored
	aids    *aids
	early   bool // its machine starts before its disks are full
}

// restored is a disk that is made of the backup.
type restored struct {
	volume string // of the machine
	name   string // of the DataVolume, its claim and its source
	size   int64
	class  string // empty: the default one
	source *accessv1.VolumeBackupSource
}

// planOf makes the machine out of what the manifest says.
func planOf(m *backup.Manifest, digest string, o Options, from accessv1.VolumeBackupSourceSpec) (*plan, error) {
	was, err := machineIn(m)
	if err != nil {
		return nil, err
	}
	if was.Name != o.Name {
		return nil, fmt.Errorf("backup %s is one of machine %q, not of %s", m.Checkpoint, was.Name, o.Name)
	}
	if wrong := validation.IsDNS1123Subdomain(o.target()); len(wrong) > 0 {
		return nil, fmt.Errorf("a machine cannot have the name %q: %s", o.target(), strings.Join(wrong, "; "))
	}
	p := &plan{moment: m, early: o.Early, machine: &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: o.target(), Labels: notDrill(was.Labels), Annotations: kept(was.Annotations)},
		Spec:       *was.Spec.DeepCopy(),
	}}
	spec := &p.machine.Spec
	spec.Running, spec.RunStrategy = nil, ptr.To(kubevirt.RunHalted)
	if o.Start {
		spec.RunStrategy = ptr.To(kubevirt.RunAlways)
	}
	spec.DataVolumeTemplates, spec.VolumeClaimTemplates = nil, nil
	for _, named := range []*string{revision(spec.Instancetype), preferred(spec.Preference)} {
		if named != nil {
			*named = "" // what the old namespace has
		}
	}
	spec.Template.ObjectMeta = metav1.ObjectMeta{Labels: spec.Template.ObjectMeta.Labels, Annotations: kept(spec.Template.ObjectMeta.Annotations)}
	if o.Addresses {
		if err := newAddresses(spec); err != nil {
			return nil, err
		}
	}
	if err := p.takeDisks(m, digest, was, o, from); err != nil {
		return nil, err
	}
	if reached := reaches(spec, p.disks); len(reached) > 0 && !o.Trust {
		return nil, fmt.Errorf("the machine in the backup has more than its own disks: %s. All who can write to the backups can have written that. "+
			"If you trust them, and have looked at it (--output yaml --trust), repeat it with --trust", strings.Join(reached, "; "))
	}
	return p, nil
}

// notDrill returns the labels without that of a restore drill: the next drill would take the machine for one that it may remove.
func notDrill(all map[string]string) map[string]string {
	out := maps.Clone(all)
	delete(out, names.Drill)
	return out
}

func revision(i *kubevirt.InstancetypeMatcher) *string {
	if i == nil {
		return nil
	}
	return &i.RevisionName
}

func preferred(p *kubevirt.PreferenceMatcher) *string {
	if p == nil {
		return nil
	}
	return &p.RevisionName
}

// machineIn reads the machine in a manifest. A field that is not known here is refused: it may be what makes the machine right, or wrong.
func machineIn(m *backup.Manifest) (*kubevirt.VirtualMachine, error) {
	if len(m.Machine) == 0 {
		return nil, fmt.Errorf("backup %s has no machine, only disks: fill DataVolumes with them", m.Checkpoint)
	}
	vm := &kubevirt.VirtualMachine{}
	d := json.NewDecoder(bytes.NewReader(m.Machine))
	d.DisallowUnknownFields()
	if err := d.Decode(vm); err != nil {
		return nil, fmt.Errorf("the machine in backup %s cannot be read: %w", m.Checkpoint, err)
	}
	if vm.APIVersion != kubevirt.GroupVersion.String() || vm.Kind != "VirtualMachine" || vm.Spec.Template == nil {
		return nil, fmt.Errorf("what backup %s has as its machine is %s %s, or has no template", m.Checkpoint, vm.APIVersion, vm.Kind)
	}
	return vm, nil
}

// kept returns the annotations without those that controllers have written, or that say what was applied.
func kept(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		group, _, _ := strings.Cut(key, "/")
		if !slices.ContainsFunc([]string{"berth.dev", "cdi.kubevirt.io", "kubevirt.io", "kubectl.kubernetes.io"}, func(g string) bool {
			return group == g || strings.HasSuffix(group, "."+g)
		}) {
			out[key] = value
		}
	}
	return out
}

// newAddresses gives every interface an address that no other has: of a group for local use, and else random.
func newAddresses(spec *kubevirt.VirtualMachineSpec) error {
	all := spec.Template.Spec.Domain.Devices.Interfaces
	for i := range all {
		at := make(net.HardwareAddr, 6)
		if _, err := rand.Read(at); err != nil {
			return fmt.Errorf("make an address: %w", err)
		}
		at[0] = 0x02
		all[i].MacAddress = at.String()
	}
	return nil
}

// takeDisks has the volumes of the machine that are in the backup made of it.
func (p *plan) takeDisks(m *backup.Manifest, digest string, was *kubevirt.VirtualMachine, o Options, from accessv1.VolumeBackupSourceSpec) error {
	volumes := p.machine.Spec.Template.Spec.Volumes
	for _, d := range m.Disks {
		at := slices.IndexFunc(volumes, func(v kubevirt.Volume) bool { return v.Name == d.Name })
		if at < 0 {
			return fmt.Errorf("backup %s has a disk %s, and its machine has no such volume", m.Checkpoint, d.Name)
		}
		r := restored{volume: d.Name, name: p.machine.Name + "-" + d.Name, size: d.Size}
		if wrong := validation.IsDNS1123Subdomain(r.name); len(wrong) > 0 {
			return fmt.Errorf("a volume cannot have the name %q: %s", r.name, strings.Join(wrong, "; "))
		}
		storage := storageOf(was, volumes[at])
		if o.Class != "" {
			storage.StorageClassName = &o.Class
		}
		r.class = ptr.Deref(storage.StorageClassName, "")
		storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(d.Size, resource.BinarySI)}
		spec := from
		spec.Checkpoint, spec.Volume, spec.Manifest = m.Checkpoint, d.Name, digest
		r.source = &accessv1.VolumeBackupSource{ObjectMeta: metav1.ObjectMeta{Name: r.name}, Spec: spec}
		p.disks = append(p.disks, r)
		volumes[at].VolumeSource = kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: r.name}}
		volumes[at].BootEarly, volumes[at].KeepAs = o.Early && volumes[at].Copied() == nil, ""
		p.machine.Spec.DataVolumeTemplates = append(p.machine.Spec.DataVolumeTemplates, kubevirt.DataVolumeTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Name: r.name},
			Spec:       cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: accessv1.VolumeBackupSourceKind, Name: r.name}, Storage: &storage},
		})
	}
	return nil
}

// storageOf returns the class and the modes that a volume of the machine asked for, as far as the machine says them.
func storageOf(was *kubevirt.VirtualMachine, v kubevirt.Volume) cdiv1.StorageSpec {
	name, _ := render.ClaimOf(v)
	for _, t := range was.Spec.DataVolumeTemplates {
		switch {
		case t.ObjectMeta.Name != name:
		case t.Spec.Storage != nil:
			return cdiv1.StorageSpec{StorageClassName: t.Spec.Storage.StorageClassName, VolumeMode: t.Spec.Storage.VolumeMode, AccessModes: t.Spec.Storage.AccessModes}
		case t.Spec.PVC != nil:
			return cdiv1.StorageSpec{StorageClassName: t.Spec.PVC.StorageClassName, VolumeMode: t.Spec.PVC.VolumeMode, AccessModes: t.Spec.PVC.AccessModes}
		}
	}
	for _, t := range was.Spec.VolumeClaimTemplates {
		if t.ObjectMeta.Name == name {
			return cdiv1.StorageSpec{StorageClassName: t.Spec.StorageClassName, VolumeMode: t.Spec.VolumeMode, AccessModes: t.Spec.AccessModes}
		}
	}
	return cdiv1.StorageSpec{}
}

// objects are what is made, for people and for Git.
func (p *plan) objects() []any {
	p.machine.TypeMeta = metav1.TypeMeta{APIVersion: kubevirt.GroupVersion.String(), Kind: "VirtualMachine"}
	out := []any{p.machine}
	for _, d := range p.disks {
		d.source.TypeMeta = metav1.TypeMeta{APIVersion: accessv1.GroupVersion.String(), Kind: accessv1.VolumeBackupSourceKind}
		out = append(out, d.source)
	}
	return out
}

// makeRest makes what the machine's disks are made of.
func (p *plan) makeRest(ctx context.Context, c *kube.Client, owner metav1.OwnerReference) error {
	if p.aids != nil {
		certs, secret := p.aids.objects(owner)
		if _, err := c.Core.CoreV1().ConfigMaps(c.Namespace).Create(ctx, certs, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create ConfigMap %s: %w", certs.Name, err)
		}
		if _, err := c.Core.CoreV1().Secrets(c.Namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create Secret %s: %w", secret.Name, err)
		}
	}
	for _, d := range p.disks {
		d.source.OwnerReferences = []metav1.OwnerReference{owner}
		if _, err := kube.BackupSources.Create(ctx, c, d.source); err != nil {
			return err
		}
	}
	return nil
}
