//go:build apiserver

package apiserver

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllers "sigs.k8s.io/controller-runtime/pkg/config"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/config/crd"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/machine"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// yard is a cluster with the machine side alone: no kind of the data side exists in it.
type yard struct {
	*testing.T
	kube client.Client
}

func newYard(t *testing.T) *yard {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	dir := t.TempDir()
	s, err := startServer(ctx, dir)
	ended := make(chan error, 1)
	t.Cleanup(func() {
		cancel()
		<-ended
		s.stop()
	})
	must(t, err)
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, cdiv1.AddToScheme, kubevirt.AddToScheme, snapshotv1.AddToScheme, accessv1.AddToScheme, volumesnapshot.AddToScheme} {
		must(t, add(types))
	}
	kube, err := client.New(s.config, client.Options{Scheme: types})
	must(t, err)
	must(t, fs.WalkDir(crd.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, "cdi/") {
			return err
		}
		text, err := fs.ReadFile(crd.Files, path)
		if err != nil {
			return err
		}
		return kube.Create(ctx, object(string(text)))
	}))
	y := &yard{T: t, kube: kube}
	for _, list := range []client.ObjectList{&kubevirt.VirtualMachineList{}, &kubevirt.VirtualMachineInstanceList{},
		&snapshotv1.VirtualMachineSnapshotList{}, &snapshotv1.VirtualMachineRestoreList{}, &accessv1.DiskAccessList{}} {
		eventually(t, "the kinds to be served", func() (bool, error) { err := kube.List(ctx, list); return err == nil, err })
	}
	y.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}})
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	y.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "topolvm.io", VolumeBindingMode: &waits})
	y.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "plain", Annotations: map[string]string{
		"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "rancher.io/local-path", VolumeBindingMode: &waits})
	mgr, err := ctrl.NewManager(s.config, ctrl.Options{
		Scheme: types, Metrics: metrics.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: controllers.Controller{SkipNameValidation: ptr.To(true)},
	})
	must(t, err)
	writer := cluster.New(mgr.GetClient(), mgr.GetEventRecorder("berth"), clock.RealClock{})
	must(t, cacheindex.Register(ctx, mgr.GetFieldIndexer()))
	must(t, machine.Setup(mgr, writer, diskaccess.New(mgr.GetClient(), mgr.GetAPIReader(), writer), machine.Options{Image: "launcher", Emulate: true}))
	go func() { ended <- mgr.Start(ctx) }()
	return y
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (y *yard) create(obj client.Object) {
	y.Helper()
	must(y.T, y.kube.Create(y.Context(), obj))
}

// machine makes a machine of YAML.
func (y *yard) machine(text string) *kubevirt.VirtualMachine {
	y.Helper()
	vm := &kubevirt.VirtualMachine{}
	must(y.T, yaml.UnmarshalStrict([]byte(text), vm))
	vm.Namespace = team
	y.create(vm)
	return vm
}

func (y *yard) claim(name string) *corev1.PersistentVolumeClaim {
	y.Helper()
	var c corev1.PersistentVolumeClaim
	eventually(y.T, "claim "+name, func() (bool, error) {
		err := y.kube.Get(y.Context(), client.ObjectKey{Namespace: team, Name: name}, &c)
		return err == nil, err
	})
	return &c
}

// says waits until the machine's condition contains the text.
func (y *yard) says(vm *kubevirt.VirtualMachine, want string) {
	y.Helper()
	eventually(y.T, fmt.Sprintf("machine %s to say %q", vm.Name, want), func() (bool, error) {
		if err := y.kube.Get(y.Context(), client.ObjectKeyFromObject(vm), vm); err != nil {
			return false, err
		}
		for _, c := range vm.Status.Conditions {
			if strings.Contains(c.Message, want) {
				return true, nil
			}
		}
		return false, fmt.Errorf("%s: %v", vm.Status.PrintableStatus, vm.Status.Conditions)
	})
}

// fails compares the reason of the machine's condition Failure; "" if there is none.
func (y *yard) fails(vm *kubevirt.VirtualMachine, want string) {
	y.Helper()
	got := ""
	for _, c := range vm.Status.Conditions {
		if c.Type == "Failure" && c.Status == corev1.ConditionTrue && c.Message != "" {
			got = c.Reason
		}
	}
	if got != want {
		y.Errorf("machine %s fails with %q, want %q: %+v", vm.Name, got, want, vm.Status.Conditions)
	}
}

func (y *yard) instance(name string) *kubevirt.VirtualMachineInstance {
	y.Helper()
	var i kubevirt.VirtualMachineInstance
	eventually(y.T, "instance "+name, func() (bool, error) {
		err := y.kube.Get(y.Context(), client.ObjectKey{Namespace: team, Name: name}, &i)
		return err == nil, err
	})
	return &i
}

const generated = `
metadata: {generateName: testvm-}
spec:
  running: true
  volumeClaimTemplates:
    - metadata: {name: pvc1, labels: {tier: gold}}
      spec: {resources: {requests: {storage: 1Gi}}}
  template:
    spec:
      domain: {devices: {}}
      volumes:
        - {name: volume1, persistentVolumeClaim: {name: pvc1}}
`

// TestMachineSideAlone: machines with claim templates need nothing of the data side, not even its kinds.
func TestMachineSideAlone(t *testing.T) {
	y := newYard(t)

	t.Run("a machine that is applied twice is two machines with two claims", func(t *testing.T) {
		y := &yard{T: t, kube: y.kube}
		a, b := y.machine(generated), y.machine(generated)
		for _, vm := range []*kubevirt.VirtualMachine{a, b} {
			c := y.claim(vm.Name + "-pvc1")
			if !metav1.IsControlledBy(c, vm) || c.Labels["tier"] != "gold" || c.Labels["vm.kubevirt.io/name"] != vm.Name {
				t.Errorf("claim %s: owners %v, labels %v", c.Name, c.OwnerReferences, c.Labels)
			}
			// Partial: the default class, and the modes that are known of its provisioner.
			if *c.Spec.StorageClassName != "plain" || *c.Spec.VolumeMode != corev1.PersistentVolumeFilesystem || len(c.Spec.AccessModes) != 1 {
				t.Errorf("claim %s is %+v", c.Name, c.Spec)
			}
			i := y.instance(vm.Name)
			if got := i.Spec.Volumes[0].PersistentVolumeClaim; got.ClaimName != c.Name || got.Name != "" {
				t.Errorf("instance %s has the claim %+v", i.Name, got)
			}
			// The launcher is the claim's first consumer: it is there before the claim is bound.
			eventually(t, "a launcher", func() (bool, error) {
				var pods corev1.PodList
				err := y.kube.List(t.Context(), &pods, client.MatchingLabels{"kubevirt.io/domain": vm.Name})
				return len(pods.Items) == 1 && pods.Items[0].Annotations["kubevirt.io/ephemeral-provisioning"] == "", err
			})
			y.says(vm, fmt.Sprintf("PersistentVolumeClaim %s is not bound yet", c.Name))
		}
	})

	t.Run("a full spec is taken as it is", func(t *testing.T) {
		y := &yard{T: t, kube: y.kube}
		y.machine(`
metadata: {name: full}
spec:
  running: false
  volumeClaimTemplates:
    - metadata: {name: disk}
      spec: {storageClassName: odd, accessModes: [ReadWriteMany], volumeMode: Block, resources: {requests: {storage: 2Gi}},
        dataSourceRef: {apiGroup: example.com, kind: Image, name: a}}
  template: {spec: {domain: {devices: {}}, volumes: [{name: d, persistentVolumeClaim: {claimName: disk}}]}}`)
		c := y.claim("full-disk")
		if *c.Spec.StorageClassName != "odd" || *c.Spec.VolumeMode != corev1.PersistentVolumeBlock || c.Spec.AccessModes[0] != corev1.ReadWriteMany ||
			c.Spec.DataSourceRef == nil || c.Spec.DataSourceRef.Kind != "Image" {
			t.Errorf("it is %+v", c.Spec)
		}
	})

	t.Run("a source that the API server would drop keeps the claim from being made", func(t *testing.T) {
		y := &yard{T: t, kube: y.kube}
		vm := y.machine(sourced("dropped", "{apiGroup: example.com, kind: Image, name: a, namespace: golden}"))
		y.says(vm, "volumeClaimTemplate disk: the API server drops its data source: Image a is in namespace golden, and this cluster does not "+
			"have the feature gate CrossNamespaceVolumeDataSource; use a source in namespace team")
		err := y.kube.Get(t.Context(), client.ObjectKey{Namespace: team, Name: "dropped-disk"}, &corev1.PersistentVolumeClaim{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("a claim was made: %v", err)
		}
	})

	t.Run("one of our sources in another namespace is kept", func(t *testing.T) {
		y := &yard{T: t, kube: y.kube}
		y.machine(sourced("abroad", "{apiGroup: cdi.kubevirt.io, kind: VolumeImportSource, name: a, namespace: golden}"))
		c := y.claim("abroad-disk")
		if ref := c.Spec.DataSourceRef; ref == nil || ref.Kind != "VolumeImportSource" || ref.Name != "a" || c.Annotations["berth.dev/source-namespace"] != golden {
			t.Errorf("it is %+v with annotations %v", c.Spec, c.Annotations)
		}
	})

	t.Run("a claim of somebody else is left alone", func(t *testing.T) {
		y := &yard{T: t, kube: y.kube}
		theirs := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "taken-disk"}, Spec: y.claim("full-disk").Spec}
		theirs.Spec.VolumeName = ""
		y.create(theirs)
		vm := y.machine(strings.ReplaceAll(simple, "NAME", "taken"))
		y.says(vm, "PersistentVolumeClaim taken-disk exists and is nobody's; it is not this machine's and is left as it is")
		if c := y.claim("taken-disk"); len(c.OwnerReferences) > 0 || c.UID != theirs.UID {
			t.Errorf("it was touched: %+v", c.ObjectMeta)
		}
		must(t, y.kube.Delete(t.Context(), theirs))
		must(t, y.kube.Patch(t.Context(), theirs, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		eventually(t, "its own claim after that", func() (bool, error) {
			return metav1.IsControlledBy(y.claim("taken-disk"), vm), nil
		})
	})

	t.Run("a claim that came back without its machine is its disk again", func(t *testing.T) {
		y := &yard{T: t, kube: y.kube}
		old := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "back-disk",
			Labels: map[string]string{"vm.kubevirt.io/name": "back"}}, Spec: y.claim("full-disk").Spec}
		old.Spec.VolumeName = ""
		y.create(old)
		vm := y.machine(strings.ReplaceAll(simple, "NAME", "back"))
		eventually(t, "adoption", func() (bool, error) {
			c := y.claim("back-disk")
			return c.UID == old.UID && metav1.IsControlledBy(c, vm), fmt.Errorf("%+v", c.ObjectMeta)
		})
	})

	t.Run("what a claim lacks is said", func(t *testing.T) {
		y := &yard{T: t, kube: y.kube}
		vm := y.machine(strings.ReplaceAll(strings.ReplaceAll(simple, "NAME", "vague"), "resources: {requests: {storage: 1Gi}}", "storageClassName: plain"))
		y.says(vm, "volumeClaimTemplate disk: PVC size is missing; write resources.requests.storage")
		if vm.Status.PrintableStatus != kubevirt.StatusPvcNotFound {
			t.Errorf("status is %s", vm.Status.PrintableStatus)
		}
	})

	t.Run("a field that admission would have refused", y.refusedField)
	t.Run("instance type and preference", y.kinds)
}

// refusedField: there is no webhook here, so the API server takes everything; the controller does not start a machine without what it asks for.
func (y *yard) refusedField(t *testing.T) {
	y = &yard{T: t, kube: y.kube}
	vm := y.machine(strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(simple, "NAME", "asks"), "running: false", "running: true"),
		"devices: {}", "devices: {hostDevices: [{}]}"))
	y.says(vm, "spec.template.spec.domain.devices.hostDevices is not supported: devices of the node are not given to a guest")
	y.fails(vm, "FailedCreate")
	must(t, y.kube.Patch(t.Context(), vm, client.RawPatch("application/json-patch+json",
		[]byte(`[{"op": "remove", "path": "/spec/template/spec/domain/devices/hostDevices"}]`))))
	y.says(vm, "is not bound yet")
	y.fails(vm, "")
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "asks-alone"}}
	i.Spec.Domain.CPU = &kubevirt.CPU{DedicatedCPUPlacement: true}
	y.create(i)
	eventually(t, "the instance to say why it is not started", func() (bool, error) {
		err := y.kube.Get(t.Context(), client.ObjectKeyFromObject(i), i)
		return i.Status.Reason == "FieldsNotSupported" && i.Status.Phase == kubevirt.PhasePending, err
	})
	must(t, y.kube.Delete(t.Context(), i))
	must(t, y.kube.Delete(t.Context(), vm))
}

const simple = `
metadata: {name: NAME}
spec:
  running: false
  volumeClaimTemplates:
    - metadata: {name: disk}
      spec: {resources: {requests: {storage: 1Gi}}}
  template: {spec: {domain: {devices: {}}, volumes: [{name: d, persistentVolumeClaim: {name: disk}}]}}
`

// kinds: the preference has a say about the claim, the instance gets what both say, and a later change of them is for
// machines that are made later.
func (y *yard) kinds(t *testing.T) {
	y = &yard{T: t, kube: y.kube}
	vm := y.machine(strings.ReplaceAll(strings.ReplaceAll(simple, "NAME", "kinds"), "running: false",
		"running: true\n  instancetype: {inferFromVolume: d}\n  preference: {name: linux, kind: virtualmachinepreference}"))
	y.says(vm, "unable to find required default-instancetype label on volume d, its claim or its source")
	y.fails(vm, "FailedFindInstancetype")
	must(t, y.kube.Patch(t.Context(), vm, client.RawPatch("application/json-patch+json",
		[]byte(`[{"op": "add", "path": "/spec/volumeClaimTemplates/0/metadata/labels", "value": {"instancetype.kubevirt.io/default-instancetype": "small"}}]`))))
	y.says(vm, "VirtualMachineClusterInstancetype small does not exist")
	y.fails(vm, "FailedFindInstancetype")
	small := object("{apiVersion: instancetype.kubevirt.io/v1beta1, kind: VirtualMachineClusterInstancetype, metadata: {name: small}, " +
		"spec: {cpu: {guest: 2}, memory: {guest: 192Mi}}}")
	y.create(small)
	y.says(vm, "VirtualMachinePreference linux does not exist")
	y.fails(vm, "FailedFindPreference")
	y.create(object("{apiVersion: instancetype.kubevirt.io/v1beta1, kind: VirtualMachinePreference, metadata: {name: linux, namespace: team}, " +
		"spec: {volumes: {preferredStorageClassName: fast}, devices: {preferredDiskBus: scsi, preferredDiskCache: writeback}}}"))
	if c := y.claim("kinds-disk"); *c.Spec.StorageClassName != "fast" || *c.Spec.VolumeMode != corev1.PersistentVolumeBlock {
		t.Errorf("the claim is %+v", c.Spec)
	}
	check := func(sockets uint32) {
		t.Helper()
		d := y.instance("kinds").Spec.Domain
		if d.CPU.Sockets != sockets || d.Memory.Guest.String() != "192Mi" || d.Devices.Disks[0].Disk.Bus != "scsi" || d.Devices.Disks[0].Cache != "writeback" {
			t.Errorf("the instance has %+v", d)
		}
	}
	check(2)
	y.says(vm, "is not bound yet")
	y.fails(vm, "")
	lost := y.machine(strings.ReplaceAll(strings.ReplaceAll(simple, "NAME", "revised"), "running: false", "running: true\n  instancetype: {name: small, revisionName: gone}"))
	y.says(lost, "ControllerRevision gone, the copy of instance type small it is to use, does not exist")
	y.fails(lost, "FailedFindInstancetype")
	must(t, y.kube.Delete(t.Context(), lost))
	ref := vm.Status.InstancetypeRef
	if ref == nil || ref.Name != "small" || ref.Kind != "VirtualMachineClusterInstancetype" || ref.ControllerRevisionRef == nil {
		t.Fatalf("recorded is %+v", ref)
	}
	var revision appsv1.ControllerRevision
	must(t, y.kube.Get(t.Context(), client.ObjectKey{Namespace: team, Name: ref.ControllerRevisionRef.Name}, &revision))
	if !metav1.IsControlledBy(&revision, vm) || !strings.Contains(string(revision.Data.Raw), "192Mi") {
		t.Errorf("the copy is %+v", revision)
	}
	must(t, y.kube.Patch(t.Context(), small, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"cpu":{"guest":4}}}`))))
	first := y.instance("kinds")
	must(t, y.kube.Delete(t.Context(), first))
	eventually(t, "another instance", func() (bool, error) { return y.instance("kinds").UID != first.UID, nil })
	check(2)
}

// TestExamplesOfMachines: every example about machines applies strictly, and again without a difference.
func TestExamplesOfMachines(t *testing.T) {
	root, err := moduleRoot()
	must(t, err)
	for _, name := range []string{"vm-claims.yaml", "instancetype.yaml", "vm-snapshot.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, "examples", name))
		must(t, err)
		for i, doc := range strings.Split(string(text), "\n---\n") {
			t.Run(fmt.Sprintf("%s-%d", name, i), func(t *testing.T) {
				o := object(doc)
				if o.GetNamespace() == "" && !strings.Contains(o.GetKind(), "Cluster") {
					o.SetNamespace(team)
				}
				create(t, admin, o)
				for range 2 {
					again := object(doc)
					again.SetNamespace(o.GetNamespace())
					must(t, admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(again), client.FieldOwner("gitops")))
					if again.GetGeneration() != o.GetGeneration() {
						t.Errorf("applying it again changed it: generation %d, then %d", o.GetGeneration(), again.GetGeneration())
					}
				}
			})
		}
	}
}

// sourced returns a machine whose claim names a source.
func sourced(name, ref string) string {
	return fmt.Sprintf(`
metadata: {name: %s}
spec:
  running: false
  volumeClaimTemplates:
    - metadata: {name: disk}
      spec: {storageClassName: odd, accessModes: [ReadWriteOnce], volumeMode: Filesystem, resources: {requests: {storage: 2Gi}},
        dataSourceRef: %s}
  template: {spec: {domain: {devices: {}}, volumes: [{name: d, persistentVolumeClaim: {claimName: disk}}]}}`, name, ref)
}
