package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/clock"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/aggregated"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherexec"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// theCluster implements aggregated.Cluster.
type theCluster struct {
	pods   *launcherexec.Pods
	reader client.Reader
	writer *cluster.Writer
}

func newCluster(config *rest.Config) (*theCluster, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, kubevirt.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	pods, err := launcherexec.New(config)
	if err != nil {
		return nil, err
	}
	return &theCluster{pods: pods, reader: c, writer: cluster.New(c, nil, clock.RealClock{})}, nil
}

func (c *theCluster) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	var claim corev1.PersistentVolumeClaim
	return &claim, c.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &claim)
}

func (c *theCluster) Machine(ctx context.Context, namespace, name string) (*kubevirt.VirtualMachine, error) {
	var m kubevirt.VirtualMachine
	return &m, c.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &m)
}

func (c *theCluster) Instance(ctx context.Context, namespace, name string) (*kubevirt.VirtualMachineInstance, error) {
	var i kubevirt.VirtualMachineInstance
	return &i, c.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &i)
}

func (c *theCluster) Migrations(ctx context.Context, namespace string) ([]kubevirt.VirtualMachineInstanceMigration, error) {
	var list kubevirt.VirtualMachineInstanceMigrationList
	err := c.reader.List(ctx, &list, client.InNamespace(namespace))
	return list.Items, err
}

// Carry patches what changes. The instance comes first: its grace period must hold when it is told to stop.
func (c *theCluster) Carry(ctx context.Context, change aggregated.Change) error {
	if change.Migration != nil {
		return c.writer.Create(ctx, change.Migration)
	}
	if steps := change.InstanceSteps(); len(steps) > 0 {
		if err := c.writer.Patch(ctx, change.Instance, append(steps, cluster.Unchanged(change.Instance))...); err != nil {
			return err
		}
	}
	if steps := change.StatusSteps(); len(steps) > 0 {
		return c.writer.PatchStatus(ctx, change.Machine, append(steps, cluster.Unchanged(change.Machine))...)
	}
	if steps := change.MachineSteps(); len(steps) > 0 {
		return c.writer.Patch(ctx, change.Machine, append(steps, cluster.Unchanged(change.Machine))...)
	}
	return nil
}

// Console runs the launcher's console beside the guest. Bytes pass as they are: there is no terminal in between.
func (c *theCluster) Console(ctx context.Context, i *kubevirt.VirtualMachineInstance, in io.Reader, out io.Writer) error {
	pod, err := c.launcher(ctx, i)
	if err != nil {
		return err
	}
	said := &launcherexec.Answer{}
	err = c.pods.Run(ctx, pod, launcherexec.Console, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: said})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("connect to the guest's console: %w %s", err, said)
	}
	return nil
}

// Ask runs a verb of the launcher's beside the guest.
func (c *theCluster) Ask(ctx context.Context, i *kubevirt.VirtualMachineInstance, verb string) (launcherapi.Said, error) {
	pod, err := c.launcher(ctx, i)
	if err != nil {
		return launcherapi.Said{}, err
	}
	return c.pods.Ask(ctx, pod, verb)
}

// Open runs a verb of the launcher's that continues as a connection to the guest.
func (c *theCluster) Open(ctx context.Context, i *kubevirt.VirtualMachineInstance, verb, what string) (io.ReadWriteCloser, launcherapi.Said, error) {
	pod, err := c.launcher(ctx, i)
	if err != nil {
		return nil, launcherapi.Said{}, err
	}
	return c.pods.Open(ctx, pod, verb, what)
}

// Evacuation names the wish that the guest leaves its node; empty: there is none.
func (c *theCluster) Evacuation(ctx context.Context, i *kubevirt.VirtualMachineInstance) (string, error) {
	all, err := launcherpod.Of(ctx, cluster.Reads(c.reader), i)
	if err != nil {
		return "", err
	}
	return render.EvacuationID(launcherpod.Present(all)), nil
}

// Launcher returns the pod that an instance's guest is in, or is to start in; nil: there is none.
func (c *theCluster) Launcher(ctx context.Context, i *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	all, err := launcherpod.Of(ctx, cluster.Reads(c.reader), i)
	return launcherpod.Present(all), err
}

// Instancetype reads an instance type or a preference, of either scope.
func (c *theCluster) Instancetype(ctx context.Context, kind, namespace, name string) ([]byte, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(kind))
	if err := c.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, u); err != nil {
		return nil, err
	}
	return u.MarshalJSON()
}

// Revision reads the copy that a machine keeps of an instance type or a preference.
func (c *theCluster) Revision(ctx context.Context, namespace, name string) (*appsv1.ControllerRevision, error) {
	var r appsv1.ControllerRevision
	return &r, c.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &r)
}

// launcher returns the pod that the guest runs in.
func (c *theCluster) launcher(ctx context.Context, i *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	all, err := launcherpod.Of(ctx, cluster.Reads(c.reader), i)
	if err != nil {
		return nil, err
	}
	p := launcherpod.Guest(i, all)
	if p == nil {
		return nil, errors.New("the guest's launcher is not running")
	}
	return p, nil
}
