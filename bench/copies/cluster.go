package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// bench is a namespace of a cluster.
type bench struct {
	kube   client.Client
	inside string
	node   string // of the golden claim, once a machine has run there
}

// cost is the sum over many machines.
type cost struct {
	took   time.Duration
	memory int64 // bytes of all
	disk   int64 // bytes of the largest copy
}

func open(ctx context.Context, kubeconfig string) (*bench, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgo.AddToScheme(scheme), cdiv1.AddToScheme(scheme), kubevirt.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	b := &bench{}
	if b.kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-copies-"}}
	if err := b.kube.Create(ctx, ns); err != nil {
		return nil, err
	}
	b.inside = ns.Name
	return b, nil
}

func (b *bench) leave() {
	_ = b.kube.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.inside}})
}

// until looks every 50 ms, for at most ten minutes.
func until(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Minute, true, done); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// volume makes a blank disk and waits until it is there.
func (b *bench) volume(ctx context.Context, name, class string) error {
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: b.inside, Name: name}, Spec: cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}},
		Storage: &cdiv1.StorageSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("256Mi")}}}}}
	if err := b.kube.Create(ctx, v); err != nil {
		return err
	}
	return until(ctx, "disk "+name, func(ctx context.Context) (bool, error) {
		err := b.kube.Get(ctx, client.ObjectKeyFromObject(v), v)
		return v.Status.Phase == cdiv1.Succeeded, err
	})
}

func (b *bench) machine(name, disk string, copied bool) *kubevirt.VirtualMachine {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: b.inside, Name: name},
		Spec: kubevirt.VirtualMachineSpec{RunStrategy: new(kubevirt.RunAlways), Template: &kubevirt.VirtualMachineInstanceTemplateSpec{}}}
	spec := &vm.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = new(int64(0))
	spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("32Mi"))}
	spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m")}
	v := kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: disk}}}
	if copied {
		v.Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite}
	}
	spec.Volumes = []kubevirt.Volume{v}
	return vm
}

func (b *bench) runs(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	return until(ctx, "machine "+vm.Name, func(ctx context.Context) (bool, error) {
		err := b.kube.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return vm.Status.Ready, err
	})
}

// one machine, from its creation until it runs; then it is removed.
func (b *bench) one(ctx context.Context, name, disk string, copied bool) (time.Duration, error) {
	vm := b.machine(name, disk, copied)
	begin := time.Now()
	if err := b.kube.Create(ctx, vm); err != nil {
		return 0, err
	}
	if err := b.runs(ctx, vm); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	var i kubevirt.VirtualMachineInstance
	if err := b.kube.Get(ctx, client.ObjectKeyFromObject(vm), &i); err != nil {
		return 0, err
	}
	if copied {
		b.node = i.Status.NodeName
	}
	if err := b.kube.Delete(ctx, vm); err != nil {
		return 0, err
	}
	return took, until(ctx, "machine "+name+" to be gone", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := b.kube.List(ctx, &pods, client.InNamespace(b.inside))
		return len(pods.Items) == 0, err
	})
}

// room returns how many machines the golden claim's node has memory for: what it gives to pods, less what they have asked for.
func (b *bench) room(ctx context.Context) (int, error) {
	var node corev1.Node
	if err := b.kube.Get(ctx, client.ObjectKey{Name: b.node}, &node); err != nil {
		return 0, err
	}
	var pods corev1.PodList
	if err := b.kube.List(ctx, &pods); err != nil {
		return 0, err
	}
	free := node.Status.Allocatable.Memory().Value()
	for _, p := range pods.Items {
		if p.Spec.NodeName != b.node || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, c := range p.Spec.Containers {
			free -= c.Resources.Requests.Memory().Value()
		}
	}
	return int(free / machineMemory), nil
}

// machineMemory is the memory request of the launcher of one machine: 32Mi for its guest, and 256Mi for QEMU and libvirt.
const machineMemory = 288 << 20

// many machines at once over the golden claim.
func (b *bench) many(ctx context.Context, machines int) (cost, error) {
	before, err := available()
	if err != nil {
		return cost{}, err
	}
	begin := time.Now()
	var all []*kubevirt.VirtualMachine
	for i := range machines {
		vm := b.machine(fmt.Sprintf("linked%d", i), "golden", true)
		if err := b.kube.Create(ctx, vm); err != nil {
			return cost{}, err
		}
		all = append(all, vm)
	}
	for _, vm := range all {
		if err := b.runs(ctx, vm); err != nil {
			return cost{}, err
		}
	}
	c := cost{took: time.Since(begin)}
	after, err := available()
	if err != nil {
		return c, err
	}
	c.memory = before - after
	for _, vm := range all {
		stored, err := b.stored(ctx, vm)
		if err != nil {
			return c, err
		}
		c.disk = max(c.disk, stored)
	}
	return c, nil
}

// stored returns what the machine says that its copy takes.
func (b *bench) stored(ctx context.Context, vm *kubevirt.VirtualMachine) (int64, error) {
	size := int64(-1)
	err := until(ctx, "machine "+vm.Name+" to say what its copy takes", func(ctx context.Context) (bool, error) {
		var i kubevirt.VirtualMachineInstance
		if err := b.kube.Get(ctx, client.ObjectKeyFromObject(vm), &i); err != nil {
			return false, err
		}
		for _, v := range i.Status.VolumeStatus {
			if v.Copy != nil && v.Copy.Stored != nil {
				size = v.Copy.Stored.Value()
			}
		}
		return size >= 0, nil
	})
	return size, err
}

// available returns how much memory this machine, which all nodes are on, has left.
func available() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("no MemAvailable in /proc/meminfo")
}
