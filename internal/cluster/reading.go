package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
)

// Reading reads a cluster. A kind that is not installed lists as empty.
type Reading struct {
	// Objects has the kinds that every installation has.
	Objects client.Reader
	// Live is the API server itself. Kinds of add-ons are read from it: a cache could not start without them.
	Live client.Reader
}

// Reads returns a Reading that reads everything from the API server.
func Reads(live client.Reader) Reading { return Reading{Objects: live, Live: live} }

// Read reads one object; false means that there is none.
func (r Reading) Read(ctx context.Context, namespace, name string, into runtime.Object) (bool, error) {
	from := r.Live
	switch into.(type) {
	case *corev1.PersistentVolumeClaim, *corev1.PersistentVolume, *cdiv1.DataSource, *cdiv1.VolumeCloneSource, *cdiv1.StorageProfile,
		*accessv1.VolumeBackupSource:
		from = r.Objects
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	err := from.Get(ctx, key, into.(client.Object))
	if _, volume := into.(*corev1.PersistentVolume); volume && apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, into.(client.Object)) // a claim that names it may reach the cache before it
	}
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %T %s/%s: %w", into, namespace, name, err)
	}
	return true, nil
}

// ReadAll reads the objects of a namespace, or of all for "", that have the labels. They come from the API server itself.
func (r Reading) ReadAll(ctx context.Context, namespace string, labels map[string]string, into runtime.Object) error {
	err := r.Live.List(ctx, into.(client.ObjectList), client.InNamespace(namespace), client.MatchingLabels(labels))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %T: %w", into, err)
	}
	return nil
}
