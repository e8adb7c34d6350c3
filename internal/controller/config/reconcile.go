package config

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/names"
)

// Options say where this installation is.
type Options struct {
	Namespace string // of the controller, the upload proxy and their certificates
	Version   string // shown in the CDI resource's status
}

type reconciler struct {
	client client.Reader
	home   client.Reader // of what is in the installation's namespace
	writer *cluster.Writer
	clock  clock.PassiveClock
	Options
}

// Reconcile always looks at everything: there is one CDIConfig, whatever the event was about.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	s, err := r.observe(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := decide(s)
	if err := r.writeConfig(ctx, p.config); err != nil {
		return ctrl.Result{}, err
	}
	for i := range s.resources {
		if err := r.writeStatus(ctx, &s.resources[i], p.statuses); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

func (r *reconciler) observe(ctx context.Context) (seen, error) {
	s := seen{version: r.Version, now: metav1.NewTime(r.clock.Now().Truncate(1e9))} // as the API server stores it
	var resources cdiv1.CDIList
	if err := r.client.List(ctx, &resources); err != nil {
		return seen{}, fmt.Errorf("list CDI resources: %w", err)
	}
	s.resources = resources.Items
	var classes storagev1.StorageClassList
	if err := r.client.List(ctx, &classes); err != nil {
		return seen{}, fmt.Errorf("list storage classes: %w", err)
	}
	for _, c := range classes.Items {
		s.classes = append(s.classes, c.Name)
	}
	slices.Sort(s.classes)
	var ingresses networkingv1.IngressList
	if err := r.home.List(ctx, &ingresses, client.InNamespace(r.Namespace)); err != nil {
		return seen{}, fmt.Errorf("list ingresses in %s: %w", r.Namespace, err)
	}
	s.ingresses = ingresses.Items
	var service corev1.Service
	err := r.home.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: UploadProxyService}, &service)
	if err != nil && !apierrors.IsNotFound(err) {
		return seen{}, fmt.Errorf("read service %s/%s: %w", r.Namespace, UploadProxyService, err)
	}
	if ip := service.Spec.ClusterIP; ip != corev1.ClusterIPNone {
		s.proxyIP = ip
	}
	var bundle corev1.ConfigMap
	err = r.home.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: UploadProxyBundle}, &bundle)
	if err != nil && !apierrors.IsNotFound(err) {
		return seen{}, fmt.Errorf("read config map %s/%s: %w", r.Namespace, UploadProxyBundle, err)
	}
	s.proxyCA = bundle.Data[UploadProxyBundleKey]
	return s, nil
}

// writeConfig makes the one CDIConfig, or writes the difference. It is all ours, so it is not applied: an apply that drops the last
// field of a spec leaves null where the spec was, which the API server refuses ever after.
func (r *reconciler) writeConfig(ctx context.Context, want *cdiv1.CDIConfig) error {
	have, err := cluster.Get[cdiv1.CDIConfig](ctx, r.client, "", Name)
	if err != nil {
		return err
	}
	if have == nil {
		return r.writer.Create(ctx, want)
	}
	mirrors := want.Annotations[names.RegistryMirrors]
	if equality.Semantic.DeepEqual(have.Spec, want.Spec) && equality.Semantic.DeepEqual(have.Status, want.Status) &&
		have.Annotations[names.RegistryMirrors] == mirrors {
		return nil
	}
	next := have.DeepCopy()
	next.Spec, next.Status = want.Spec, want.Status
	delete(next.Annotations, names.RegistryMirrors)
	if mirrors != "" {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, names.RegistryMirrors, mirrors)
	}
	return r.writer.Change(ctx, have, next)
}

// writeStatus states the status alone. The UID keeps it from bringing back a resource that was just deleted.
func (r *reconciler) writeStatus(ctx context.Context, c *cdiv1.CDI, statuses map[string]cdiv1.CDIStatus) error {
	want, ok := statuses[c.Name]
	if !ok || equality.Semantic.DeepEqual(c.Status, want) {
		return nil
	}
	return r.writer.Apply(ctx, &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: c.Name, UID: c.UID}, Status: want})
}
