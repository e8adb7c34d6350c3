package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads one object; nil means that there is none.
func Get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, namespace, name string) (P, error) {
	obj := P(new(T))
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, obj)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %T %s/%s: %w", obj, namespace, name, err)
	}
	return obj, nil
}
