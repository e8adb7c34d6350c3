package config

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/berth-vm/berth/internal/cluster"
)

// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=cdis,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=cdiconfigs,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch,namespace=berth
// +kubebuilder:rbac:groups="",resources=configmaps;services,verbs=get;list;watch,namespace=berth

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, o Options) error {
	// What is read in the installation's own namespace has a cache of its own, so that the manager need not be allowed
	// to watch ConfigMaps and Ingresses everywhere.
	home, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{o.Namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Service{}:   {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, UploadProxyService)},
			&corev1.ConfigMap{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, UploadProxyBundle)},
		},
	})
	if err != nil {
		return fmt.Errorf("set up the watch of namespace %s: %w", o.Namespace, err)
	}
	if err := mgr.Add(home); err != nil {
		return fmt.Errorf("add the watch of namespace %s: %w", o.Namespace, err)
	}
	r := &reconciler{client: mgr.GetClient(), home: home, writer: writer, clock: clock.RealClock{}, Options: o}
	all := handler.EnqueueRequestsFromMapFunc(theConfig)
	err = ctrl.NewControllerManagedBy(mgr).
		Named("config").
		For(&cdiv1.CDIConfig{}).
		Watches(&cdiv1.CDI{}, all).
		Watches(&storagev1.StorageClass{}, all).
		WatchesRawSource(source.Kind(home, client.Object(&networkingv1.Ingress{}), all)).
		WatchesRawSource(source.Kind(home, client.Object(&corev1.ConfigMap{}), all)).
		WatchesRawSource(source.Kind(home, client.Object(&corev1.Service{}), all)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the config controller: %w", err)
	}
	return nil
}

func theConfig(context.Context, client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: Name}}}
}
