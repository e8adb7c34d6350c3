// Package usageclass makes the StorageClass of each usage type that local disk drivers offer on nodes, so that an administrator has to
// say it once: at the driver's pods. It does not know who uses the classes (internal/controller/observed does), and changes none that
// is there.
package usageclass

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/usagetype"
	"github.com/berth-vm/berth/pkg/claim"
)

// Reconciler makes classes.
type Reconciler struct {
	reader  client.Reader
	cluster *cluster.Writer
}

// Setup adds the controller to mgr. A class that is removed while nodes offer its type is made again.
func Setup(mgr ctrl.Manager, writer *cluster.Writer) error {
	r := &Reconciler{reader: mgr.GetClient(), cluster: writer}
	return ctrl.NewControllerManagedBy(mgr).Named("usage-type").
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(offered)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(made)).
		Complete(cluster.Settle(reconcile.Func(r.reconcile)))
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
}

// offered returns the usage types of a node.
func offered(_ context.Context, node client.Object) []reconcile.Request {
	var due []reconcile.Request
	for _, name := range typesOf(node) {
		due = append(due, request(name))
	}
	return due
}

func typesOf(node client.Object) []string {
	var out []string
	for key, value := range node.GetLabels() {
		if name, ok := strings.CutPrefix(key, usagetype.Topology); ok && name != "" && value == "true" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// made returns the usage type of a class of ours.
func made(_ context.Context, class client.Object) []reconcile.Request {
	name, ok := strings.CutPrefix(class.GetName(), classPrefix)
	if !ok {
		return nil
	}
	return []reconcile.Request{request(name)}
}

// classPrefix and the name of a usage type are the name of its class.
const classPrefix = "localdisk-"

// reconcile makes the class of a usage type that some node offers and that has none.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var nodes corev1.NodeList
	if err := r.reader.List(ctx, &nodes); err != nil {
		return ctrl.Result{}, fmt.Errorf("list nodes: %w", err)
	}
	if !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return slices.Contains(typesOf(&n), req.Name) }) {
		return ctrl.Result{}, nil // a class whose type no node offers any more places nothing, and its volumes may be in use
	}
	var classes storagev1.StorageClassList
	if err := r.reader.List(ctx, &classes); err != nil {
		return ctrl.Result{}, fmt.Errorf("list storage classes: %w", err)
	}
	taken := func(c storagev1.StorageClass) bool { return c.Name == classPrefix+req.Name }
	if claim.ForUsage(classes.Items, req.Name) != nil || slices.ContainsFunc(classes.Items, taken) {
		return ctrl.Result{}, nil // an administrator's own class is as good
	}
	return ctrl.Result{}, r.cluster.Create(ctx, class(req.Name))
}

// class offers a usage type where nodes have it.
func class(name string) *storagev1.StorageClass {
	wait, grow := storagev1.VolumeBindingWaitForFirstConsumer, true
	return &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: classPrefix + name, Labels: render.Labels(""), Annotations: map[string]string{claim.UsageTypePrefix + name: "true"}},
		Provisioner: usagetype.Driver, Parameters: map[string]string{usagetype.Parameter: name},
		VolumeBindingMode: &wait, AllowVolumeExpansion: &grow,
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: usagetype.Topology + name, Values: []string{"true"}}}}},
	}
}
