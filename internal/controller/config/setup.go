package config

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/berth-vm/berth/internal/cluster"
)

// The Ingresses and the ConfigMap are those of the installation's own namespace.
//
// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=cdis,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=cdiconfigs,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch,namespace=berth
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch,namespace=berth

// Setup adds the controller to a manager, whose cache must hold the Ingresses and ConfigMaps of o.Namespace.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, o Options) error {
	r := &reconciler{client: mgr.GetClient(), writer: writer, clock: clock.RealClock{}, Options: o}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: Name}}}
	})
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == r.Namespace
	}))
	bundle := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == r.Namespace && o.GetName() == UploadProxyBundle
	}))
	err := ctrl.NewControllerManagedBy(mgr).
		Named("config").
		For(&cdiv1.CDIConfig{}).
		Watches(&cdiv1.CDI{}, all).
		Watches(&storagev1.StorageClass{}, all).
		Watches(&networkingv1.Ingress{}, all, ours).
		Watches(&corev1.ConfigMap{}, all, bundle).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the config controller: %w", err)
	}
	return nil
}
