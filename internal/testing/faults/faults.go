// Package faults disturbs what a controller under test writes: a write is refused, or it is the last thing the controller does
// before it dies. However it is disturbed, it must end in the same place.
//
// It does not know which controller writes, or what.
package faults

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Kind is the fault of a write.
type Kind string

// The kinds. After a crash whatever would have followed in the same reconcile does not happen, as if the process had died.
const (
	Refused Kind = "refused"
	Crash   Kind = "crash"
)

// Kinds are all kinds of faults.
var Kinds = []Kind{Refused, Crash}

// Every write is disturbed; one that is made again after it was refused is not.
const Every = 0

// Injector disturbs the writes of one controller. The zero value disturbs none.
type Injector struct {
	Kind   Kind
	At     int // the number of the write, from 1, or Every
	Writes int // so far
	spared bool
}

var errInjected = errors.New("fault made by the test")

// Caused reports whether an error comes only from an injected fault.
func Caused(err error) bool { return errors.Is(err, errInjected) || apierrors.IsInternalError(err) }

func (h *Injector) write(do func() error) error {
	h.Writes++
	due := h.Kind != "" && (h.Writes == h.At || h.At == Every)
	if due && h.Kind == Refused && !h.spared {
		h.spared = true
		return apierrors.NewInternalError(errInjected)
	}
	h.spared = false
	err := do()
	if err == nil && due && h.Kind == Crash {
		return errInjected
	}
	return err
}

// Client is base with its writes disturbed. admit gives a new object what the API server would, or refuses it.
func (h *Injector) Client(base client.WithWatch, admit func(client.Object) error) client.WithWatch {
	return interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return h.write(func() error {
				if err := admit(obj); err != nil {
					return err
				}
				return c.Create(ctx, obj, opts...)
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return h.write(func() error { return c.Delete(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return h.write(func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return h.write(func() error { return c.Patch(ctx, obj, p, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return h.write(func() error { return c.Apply(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return h.write(func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration,
			opts ...client.SubResourceApplyOption) error {
			return h.write(func() error { return c.SubResource(sub).Apply(ctx, obj, opts...) })
		},
	})
}
