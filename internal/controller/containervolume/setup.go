package containervolume

import (
	"context"
	"crypto/tls"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	contract "github.com/berth-vm/berth/internal/containervolume"
	"github.com/berth-vm/berth/internal/controller/installkeys"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/reach"
	"github.com/berth-vm/berth/internal/render"
)

// parallel is how many machines are reconciled at once; reconciling never waits for a container.
const parallel = 4

// Setup adds the controller to mgr.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, k *installkeys.Maker, rules reach.Rules) error {
	r := &Reconciler{reader: mgr.GetClient(), live: mgr.GetAPIReader(), cluster: writer, clock: clock.RealClock{}, keys: k, reach: rules,
		ask: &podAsker{tls: k.Asking,
			makes: probe.Aside[question, *kubevirt.MadeSource]{Patience: contract.Patience}, deletes: probe.Aside[question, bool]{Patience: contract.Patience}}}
	err := ctrl.NewControllerManagedBy(mgr).Named("volume-maker").
		For(&kubevirt.VirtualMachine{}).
		Owns(&kubevirt.VirtualMachineInstance{}).
		Watches(&accessv1.ContainerVolume{}, handler.EnqueueRequestsFromMapFunc(machineOf)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(machineOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(cluster.Settle(reconcile.Func(r.Reconcile)))
	if err != nil {
		return fmt.Errorf("set up the makers of volumes: %w", err)
	}
	return nil
}

// machineOf returns the machine that a record or a pod is for, which may be gone.
func machineOf(_ context.Context, obj client.Object) []reconcile.Request {
	name := obj.GetLabels()[render.LabelMaker]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}

// podAsker asks containers over the pod network.
type podAsker struct {
	tls     func(ctx context.Context, name string) (*tls.Config, error)
	makes   probe.Aside[question, *kubevirt.MadeSource]
	deletes probe.Aside[question, bool]
}

// question is the key of a call to a container. An answer is used only if the record has not changed since the question.
type question struct {
	pod    types.UID
	record types.UID
}

func (q question) String() string { return "the container" }

// Make puts the question and gives the answer at a later call.
func (a *podAsker) Make(_ context.Context, v *volume) (*kubevirt.MadeSource, error) {
	q, request, client := a.about(v)
	return a.makes.Once(q, func(ctx context.Context) (*kubevirt.MadeSource, error) {
		c, err := client(ctx)
		if err != nil {
			return nil, err
		}
		return c.Make(ctx, request)
	}, func() {})
}

// Delete is Make for the deletion.
func (a *podAsker) Delete(_ context.Context, v *volume) error {
	q, request, client := a.about(v)
	_, err := a.deletes.Once(q, func(ctx context.Context) (bool, error) {
		c, err := client(ctx)
		if err != nil {
			return false, err
		}
		return true, c.Delete(ctx, request)
	}, func() {})
	return err
}

// about returns which container to ask, and what. It keeps no reference to v, which other goroutines may change.
func (a *podAsker) about(v *volume) (question, contract.Request, func(context.Context) (contract.Client, error)) {
	s := v.record.Spec
	request := contract.Request{Namespace: v.record.Namespace, Machine: s.Machine, UID: string(s.MachineUID), Volume: s.Volume}
	if s.Container.Size != nil {
		request.Size = s.Container.Size.String()
	}
	address, port, name := v.pod.Status.PodIP, render.MakerPort(&s.Container), render.MakerServes(v.record.UID)
	return question{pod: v.pod.UID, record: v.record.UID}, request, func(ctx context.Context) (contract.Client, error) {
		config, err := a.tls(ctx, name)
		return contract.Client{Address: address, Port: port, TLS: config}, err
	}
}
