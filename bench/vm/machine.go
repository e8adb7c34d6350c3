package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/images"
)

// step is something that is first seen at a time.
type step string

const (
	volumeMade   step = "volume made"
	volumeHeld   step = "volume held"
	consumerMade step = "consumer made"
	claimBound   step = "claim bound"
	launcherMade step = "launcher made"
	consumerGone step = "consumer gone"
	volumeFilled step = "volume filled"
	guestRuns    step = "guest runs"
	guestsFirst  step = "guest's first line"
)

// consumerMark is the annotation of a consumer.
const consumerMark = "kubevirt.io/ephemeral-provisioning"

var steps = []step{volumeMade, volumeHeld, consumerMade, claimBound, launcherMade, consumerGone, volumeFilled, guestRuns, guestsFirst}

// run is one machine.
type run struct {
	at     map[step]time.Duration
	writes int
}

type bench struct {
	kube   client.WithWatch
	plain  kubernetes.Interface
	inside string // the namespace
}

func open(ctx context.Context, kubeconfig string) (*bench, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, cdiv1.AddToScheme, kubevirt.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	b := &bench{}
	if b.kube, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if b.plain, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-vm-"}}
	if err := b.kube.Create(ctx, ns); err != nil {
		return nil, err
	}
	b.inside = ns.Name
	return b, nil
}

func (b *bench) leave() {
	_ = b.kube.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.inside}})
}

// machine makes one, sees it through to its guest's first line, and takes it away again.
func (b *bench) machine(ctx context.Context, name, class string) (run, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	r := run{at: map[step]time.Duration{}}
	seen := make(chan watch.Event)
	for _, list := range []client.ObjectList{
		&cdiv1.DataVolumeList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PodList{}, &kubevirt.VirtualMachineList{}, &kubevirt.VirtualMachineInstanceList{},
	} {
		w, err := b.kube.Watch(ctx, list, client.InNamespace(b.inside))
		if err != nil {
			return r, err
		}
		go func() {
			for e := range w.ResultChan() {
				select {
				case seen <- e:
				case <-ctx.Done():
				}
			}
		}()
	}
	vm := b.render(name, class)
	begin := time.Now()
	if err := b.kube.Create(ctx, vm); err != nil {
		return r, err
	}
	var spoke chan error // nil until there is somebody to listen to
	for {
		select {
		case e := <-seen:
			r.note(e, name, time.Since(begin))
			if _, ok := r.at[launcherMade]; ok && spoke == nil {
				spoke = make(chan error, 1)
				go func() { spoke <- b.listen(ctx, name) }()
			}
		case err := <-spoke:
			r.at[guestsFirst] = time.Since(begin)
			if err != nil {
				return r, err
			}
			return r, b.remove(ctx, vm)
		case <-ctx.Done():
			return r, fmt.Errorf("machine %s did not get there: %v", name, r.at)
		}
	}
}

// note records when a step was first seen. Each version of an object is one write to the API server, by any client.
func (r *run) note(e watch.Event, name string, at time.Duration) {
	obj, ok := e.Object.(client.Object)
	if !ok || !strings.Contains(obj.GetName(), name) {
		return
	}
	r.writes++
	first := func(s step) {
		if _, ok := r.at[s]; !ok {
			r.at[s] = at
		}
	}
	switch o := obj.(type) {
	case *cdiv1.DataVolume:
		first(volumeMade)
		if o.Status.Phase == cdiv1.WaitForFirstConsumer {
			first(volumeHeld)
		}
		if o.Status.Phase == cdiv1.Succeeded {
			first(volumeFilled)
		}
	case *corev1.PersistentVolumeClaim:
		if o.Status.Phase == corev1.ClaimBound {
			first(claimBound)
		}
	case *corev1.Pod:
		notePod(o, e.Type, first)
	}
}

func notePod(p *corev1.Pod, kind watch.EventType, first func(step)) {
	_, consumer := p.Annotations[consumerMark]
	switch {
	case p.Labels["kubevirt.io"] != "virt-launcher": // a worker
		return
	case consumer && kind == watch.Deleted:
		first(consumerGone)
	case consumer:
		first(consumerMade)
	default:
		first(launcherMade)
	}
	for _, c := range p.Status.Conditions {
		if !consumer && c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			first(guestRuns)
		}
	}
}

// listen waits for the guest's first line on its serial port.
func (b *bench) listen(ctx context.Context, name string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var pods corev1.PodList
		if err := b.kube.List(ctx, &pods, client.InNamespace(b.inside), client.MatchingLabels{"kubevirt.io/domain": name}); err != nil {
			return err
		}
		for _, p := range pods.Items {
			if _, consumer := p.Annotations[consumerMark]; consumer {
				continue
			}
			log, err := b.plain.CoreV1().Pods(b.inside).GetLogs(p.Name, &corev1.PodLogOptions{Follow: true, Container: "compute"}).Stream(ctx)
			if err != nil {
				break // its container has not started
			}
			defer func() { _ = log.Close() }()
			for lines := bufio.NewScanner(log); lines.Scan(); {
				if strings.Contains(lines.Text(), "berth-guest:") {
					return nil
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// remove deletes the machine and waits until it is gone, so that the next has the cluster to itself.
func (b *bench) remove(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	if err := b.kube.Delete(ctx, vm); err != nil {
		return err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var pods corev1.PodList
		if err := b.kube.List(ctx, &pods, client.InNamespace(b.inside)); err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *bench) render(name, class string) *kubevirt.VirtualMachine {
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.inside, Name: name},
		Spec: kubevirt.VirtualMachineSpec{RunStrategy: ptr.To(kubevirt.RunAlways), Template: &kubevirt.VirtualMachineInstanceTemplateSpec{},
			DataVolumeTemplates: []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cdiv1.DataVolumeSpec{
				Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}},
				PVC: &corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}}},
			}}}},
	}
	s := &vm.Spec.Template.Spec
	s.TerminationGracePeriodSeconds = ptr.To[int64](0)
	s.Domain.Memory = &kubevirt.Memory{Guest: ptr.To(resource.MustParse("192Mi"))}
	s.Domain.Firmware = &kubevirt.Firmware{KernelBoot: &kubevirt.KernelBoot{KernelArgs: "console=ttyS0 quiet",
		Container: &kubevirt.KernelBootContainer{Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent,
			KernelPath: "/boot/vmlinuz", InitrdPath: "/boot/initrd"}}}
	s.Volumes = []kubevirt.Volume{{Name: "disk", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: name}}}}
	return vm
}
