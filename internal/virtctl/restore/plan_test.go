package restore

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/source"
)

const digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

// web is a machine as it is in a manifest.
const web = `{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: web, namespace: old, uid: u, finalizers: [f], labels: {app: web},
  annotations: {berth.dev/x: "1", cdi.kubevirt.io/storage.clone.token: t, example.com/note: hello}}, spec: {runStrategy: Always,
  dataVolumeTemplates: [{metadata: {name: web-disk}, spec: {source: {blank: {}}, storage: {storageClassName: fast, resources: {requests: {storage: 1Gi}}}}}],
  instancetype: {name: u1.small, revisionName: old-revision},
  template: {metadata: {annotations: {berth.dev/machine: "{}"}}, spec: {domain: {devices: {disks: [{name: root, disk: {bus: virtio}}, {name: init, disk: {bus: virtio}}],
    interfaces: [{name: default, macAddress: "02:00:00:00:00:01", masquerade: {}}]}}, networks: [{name: default, pod: {}}],
    volumes: [{name: root, dataVolume: {name: web-disk}}, {name: init, cloudInitNoCloud: {userData: hello}}]}}}, status: {ready: true}}`

func manifestOf(t *testing.T, machine string) *backup.Manifest {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(machine))
	if err != nil {
		t.Fatal(err)
	}
	return &backup.Manifest{Version: backup.Version, Checkpoint: "b2", Disks: []backup.Disk{{Name: "root", Size: 1 << 30}}, Machine: text}
}

func inBackups() accessv1.VolumeBackupSourceSpec {
	return accessv1.VolumeBackupSourceSpec{Claim: &accessv1.BackupClaim{Name: "backups", Path: "web"}}
}

// TestPlan: the machine has its spec, disks of the backup under names of its own, and nothing of what belonged to the one that was backed up.
func TestPlan(t *testing.T) {
	p, err := planOf(manifestOf(t, web), digest, Options{Name: "web", As: "again", Early: true}, inBackups())
	if err != nil {
		t.Fatal(err)
	}
	vm := p.machine
	if vm.Name != "again" || vm.Namespace != "" || vm.UID != "" || vm.Finalizers != nil || vm.Labels["app"] != "web" || len(vm.Annotations) != 1 || vm.Annotations["example.com/note"] != "hello" {
		t.Errorf("its metadata is %+v", vm.ObjectMeta)
	}
	if *vm.Spec.RunStrategy != kubevirt.RunHalted || vm.Spec.Instancetype.Name != "u1.small" || vm.Spec.Instancetype.RevisionName != "" || len(vm.Spec.Template.ObjectMeta.Annotations) != 0 ||
		!reflect.DeepEqual(vm.Status, kubevirt.VirtualMachineStatus{}) {
		t.Errorf("it is %+v", vm)
	}
	volume := vm.Spec.Template.Spec.Volumes[0]
	template := vm.Spec.DataVolumeTemplates[0]
	size := template.Spec.Storage.Resources.Requests[corev1.ResourceStorage]
	if volume.DataVolume == nil || volume.DataVolume.Name != "again-root" || !volume.BootEarly || len(vm.Spec.DataVolumeTemplates) != 1 || template.ObjectMeta.Name != "again-root" ||
		template.Spec.SourceRef.Kind != "VolumeBackupSource" || template.Spec.SourceRef.Name != "again-root" || template.Spec.Source != nil ||
		*template.Spec.Storage.StorageClassName != "fast" || size.Value() != 1<<30 {
		t.Errorf("its disk is %+v of %+v", volume, template)
	}
	if s := p.disks[0].source; s.Name != "again-root" || s.Spec.Checkpoint != "b2" || s.Spec.Volume != "root" || s.Spec.Manifest != digest || s.Spec.Claim.Path != "web" {
		t.Errorf("the disk comes from %+v", s)
	}
	if at := vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress; at != "02:00:00:00:00:01" {
		t.Errorf("its address is %s", at)
	}
}

// TestNewAddresses: an address is for local use, of one interface, and another each time.
func TestNewAddresses(t *testing.T) {
	seen := map[string]bool{"02:00:00:00:00:01": true}
	for range 10 {
		p, err := planOf(manifestOf(t, web), digest, Options{Name: "web", Addresses: true, Start: true, Class: "slow"}, inBackups())
		if err != nil {
			t.Fatal(err)
		}
		at := p.machine.Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress
		if !strings.HasPrefix(at, "02:") || seen[at] {
			t.Errorf("address %s", at)
		}
		seen[at] = true
		if *p.machine.Spec.RunStrategy != kubevirt.RunAlways || p.disks[0].class != "slow" {
			t.Errorf("%+v", p)
		}
	}
}

// TestHostileManifests: what a stranger wrote into a manifest leads to nothing of the one who restores it, unless they say that they trust it.
func TestHostileManifests(t *testing.T) {
	volume := func(v string) string {
		return strings.Replace(web, "volumes: [", "volumes: [{name: more, "+v+"}, ", 1)
	}
	spec := func(s string) string { return strings.Replace(web, "networks: ", s+", networks: ", 1) }
	reached := map[string]string{
		"a Secret":                 volume("secret: {secretName: db-password}"),
		"a ConfigMap":              volume("configMap: {name: settings}"),
		"a ServiceAccount's token": volume("serviceAccount: {serviceAccountName: admin}"),
		"another claim":            volume("persistentVolumeClaim: {claimName: customers}"),
		"another DataVolume":       volume("dataVolume: {name: customers}"),
		"a disk of the node":       volume("hostDisk: {path: /dev/sda, type: Disk}"),
		"an ephemeral claim":       volume("ephemeral: {persistentVolumeClaim: {claimName: customers}}"),
		"a server":                 volume("nbd: {host: {name: evil}, export: x}"),
		"answers for a setup":      volume("sysprep: {secret: {name: s}}"),
		"a container":              volume("container: {image: i}"),
		"a container image":        volume("containerImage: {image: i}"),
		"a Secret with user data":  volume("cloudInitNoCloud: {secretRef: {name: s}}"),
		"a Secret for an image":    volume("containerDisk: {image: i, imagePullSecret: s}"),
		"keys of the guest":        spec("accessCredentials: [{sshPublicKey: {source: {secret: {secretName: s}}, propagationMethod: {noCloud: {}}}}]"),
		"a source at the disk":     strings.Replace(web, "{name: root, disk: {bus: virtio}}", "{name: root, disk: {bus: virtio}, source: {pvc: {claimname: customers}}}", 1),
	}
	for name, machine := range reached {
		t.Run(name, func(t *testing.T) {
			_, err := planOf(manifestOf(t, machine), digest, Options{Name: "web"}, inBackups())
			if err == nil || !strings.Contains(err.Error(), "more than its own disks") {
				t.Errorf("it is taken: %v", err)
			}
			if _, err := planOf(manifestOf(t, machine), digest, Options{Name: "web", Trust: true}, inBackups()); err != nil {
				t.Errorf("it is refused although it is trusted: %v", err)
			}
		})
	}
	for name, c := range map[string]struct{ machine, as, says string }{
		"another machine":   {strings.Replace(web, "name: web,", "name: other,", 1), "", `machine "other"`},
		"another kind":      {strings.Replace(web, "kind: VirtualMachine,", "kind: Pod,", 1), "", "Pod"},
		"a field of later":  {strings.Replace(web, "runStrategy:", "surprise: 1, runStrategy:", 1), "", "surprise"},
		"no template":       {`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: web}, spec: {}}`, "", "no template"},
		"no such volume":    {strings.Replace(web, "{name: root, dataVolume: {name: web-disk}}, ", "", 1), "", "no such volume"},
		"no name":           {web, "Not/AName", "cannot have the name"},
		"a name of no kind": {strings.Replace(web, "name: web,", `name: "../web",`, 1), "", `machine "../web"`},
	} {
		_, err := planOf(manifestOf(t, c.machine), digest, Options{Name: "web", As: c.as, Trust: true}, inBackups())
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if _, err := planOf(&backup.Manifest{Checkpoint: "b2"}, digest, Options{Name: "web"}, inBackups()); err == nil {
		t.Error("a backup without a machine")
	}
}

// TestNoVolumeIsForgotten: every kind of volume either belongs to the machine itself, or is one that reaches elsewhere.
func TestNoVolumeIsForgotten(t *testing.T) {
	var fields []string
	var look func(s reflect.Type)
	look = func(s reflect.Type) {
		for i := range s.NumField() {
			if f := s.Field(i); f.Anonymous {
				look(f.Type)
			} else {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				fields = append(fields, name)
			}
		}
	}
	look(reflect.TypeFor[kubevirt.VolumeSource]())
	for _, name := range own {
		if !slices.Contains(fields, name) {
			t.Errorf("there is no volume %s", name)
		}
	}
	for _, name := range fields {
		v := kubevirt.Volume{Name: "v"}
		if err := json.Unmarshal([]byte(`{"`+name+`": {}}`), &v); err != nil {
			t.Fatal(err)
		}
		spec := &kubevirt.VirtualMachineSpec{Template: &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{v}}}}
		if got := len(reaches(spec, nil)) > 0; got == (slices.Contains(own, name) && name != "dataVolume") {
			t.Errorf("volume %s reaches elsewhere: %v", name, got)
		}
	}
}

// TestList: a listing is made by others; only what is a backup counts, and the newest is last.
func TestList(t *testing.T) {
	files := map[string]string{}
	for name, at := range map[string]int{"b1": 1, "b2": 3, "b3": 2} {
		text, err := json.Marshal(&backup.Manifest{Version: backup.Version, Checkpoint: name, Created: time.Unix(int64(at), 0).UTC(),
			Disks: []backup.Disk{{Name: "root", Size: 512, Granularity: 65536, File: "f", Bytes: 1, Sums: "s", Piece: 1 << 20, Digest: digest}}})
		if err != nil {
			t.Fatal(err)
		}
		files[name+"/manifest.json"] = string(text)
	}
	files["broken/manifest.json"] = "{"
	s := &set{
		files: func(_ context.Context, path string) (source.Blob, error) {
			if strings.Contains(path, "..") || strings.HasPrefix(path, ".") {
				t.Errorf("%s is read", path)
			}
			text, ok := files[path]
			if !ok {
				return nil, task.Errorf(task.SourceNotFound, "there is no %s", path)
			}
			return inMemory{path, []byte(text)}, nil
		},
		dir: func(context.Context) ([]byte, error) {
			return []byte(`<a href="b1/">b1/</a> <a href="b2/">b2/</a><a href="./b3/"> <a href="../">up</a> <a href=".b4.berth-part/"> <a href="lost+found/"> <a href="broken/"> <a href="x.txt">`), nil
		},
	}
	all, err := s.list(t.Context())
	if err != nil || len(all) != 3 || all[2].Checkpoint != "b2" {
		t.Errorf("%v %v", all, err)
	}
	if m, _, err := s.manifest(t.Context(), ""); err != nil || m.Checkpoint != "b2" {
		t.Errorf("the newest is %v, %v", m, err)
	}
	s.dir = nil
	if _, _, err := s.manifest(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "--at") {
		t.Errorf("without a list: %v", err)
	}
}

// TestDemand: the disks are added up, for each class and for all.
func TestDemand(t *testing.T) {
	got := demand([]restored{{size: 1 << 30, class: "fast"}, {size: 2 << 30, class: "fast"}, {size: 4 << 30, class: "slow"}})
	for name, want := range map[corev1.ResourceName]int64{
		"requests.storage": 7 << 30, "persistentvolumeclaims": 3, "fast.storageclass.storage.k8s.io/requests.storage": 3 << 30,
		"slow.storageclass.storage.k8s.io/persistentvolumeclaims": 1, "count/virtualmachines.kubevirt.io": 1, "count/datavolumes.cdi.kubevirt.io": 3,
	} {
		q := got[name]
		if q.Value() != want {
			t.Errorf("%s is %s of %v", name, q.String(), slices.Sorted(maps.Keys(got)))
		}
	}
}

// TestMutatedMachines: a machine in a manifest, whatever was changed in it, is refused, or leads to nothing but its own disks, is stopped, and has no name but the
// one that was asked for. It is no fuzz target, which would compile all of Kubernetes' clients once more.
func TestMutatedMachines(t *testing.T) {
	seed, err := yaml.YAMLToJSON([]byte(web))
	if err != nil {
		t.Fatal(err)
	}
	words := []string{`"secret":{"secretName":"s"}`, `"persistentVolumeClaim":{"claimName":"c"}`, `"root"`, `"name"`, `{}`, `[]`, `null`, `"hostDisk":{"path":"/"}`, `,`, `"dataVolume"`, `"dataVolumeTemplates"`}
	rng := rand.New(rand.NewPCG(1, 1))
	taken := 0
	for range 20_000 {
		m := &backup.Manifest{Version: backup.Version, Checkpoint: "b2", Disks: []backup.Disk{{Name: "root", Size: 1 << 30}}}
		text := slices.Clone(seed)
		for range 1 + rng.IntN(3) {
			at := rng.IntN(len(text))
			switch rng.IntN(3) {
			case 0:
				text[at] = byte(32 + rng.IntN(95))
			case 1:
				text = slices.Insert(text, at, []byte(words[rng.IntN(len(words))])...)
			case 2:
				text = slices.Delete(text, at, min(len(text), at+rng.IntN(20)))
			}
		}
		m.Machine = text
		p, err := planOf(m, digest, Options{Name: "web", As: "again"}, inBackups())
		if err != nil {
			continue
		}
		taken++
		spec := &p.machine.Spec
		if p.machine.Name != "again" || p.machine.OwnerReferences != nil || p.machine.Finalizers != nil || *spec.RunStrategy != kubevirt.RunHalted || spec.Running != nil {
			t.Errorf("%s became %+v", text, p.machine)
		}
		if reached := reaches(spec, p.disks); len(reached) > 0 {
			t.Errorf("%s has more than its own disks: %q", text, reached)
		}
		for _, d := range spec.DataVolumeTemplates {
			if d.Spec.Source != nil || d.Spec.SourceRef == nil || d.Spec.SourceRef.Name != "again-root" || d.Spec.SourceRef.Namespace != nil {
				t.Errorf("%s has a disk that is made of %+v", text, d.Spec)
			}
		}
	}
	if taken == 0 {
		t.Error("none was taken, so nothing was tested")
	}
}
