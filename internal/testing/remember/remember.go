// Package remember has a fake API server remember what was read of it, until something of that kind is written. The fake makes
// each answer out of JSON, which is most of the time of a test that reads a small cluster thousands of times.
package remember

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// answer is the server's answer to a question.
type answer struct {
	object runtime.Object
	err    error
}

// reads are the answers to each question, by kind.
type reads struct {
	mu    sync.Mutex
	known map[schema.GroupKind]map[string]answer
}

// Client is base, asked once for what does not change. Each caller gets a copy of its own.
func Client(base client.WithWatch) client.WithWatch {
	r := &reads{known: map[schema.GroupKind]map[string]answer{}}
	return interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return r.read(c, obj, fmt.Sprintf("get %T %s %v", obj, key, opts), func(into runtime.Object) error { return c.Get(ctx, key, into.(client.Object), opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			return r.read(c, list, fmt.Sprintf("list %T %s %v %v", list, o.Namespace, o.LabelSelector, o.FieldSelector),
				func(into runtime.Object) error { return c.List(ctx, into.(client.ObjectList), opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			defer r.forget(c, obj)
			return c.Create(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			defer r.forget(c, obj)
			return c.Delete(ctx, obj, opts...)
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error {
			defer r.forget(c, obj)
			return c.DeleteAllOf(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			defer r.forget(c, obj)
			return c.Update(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			defer r.forget(c, obj)
			return c.Patch(ctx, obj, p, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			defer r.forgetApplied(obj)
			return c.Apply(ctx, obj, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, other client.Object, opts ...client.SubResourceCreateOption) error {
			defer r.forget(c, obj)
			return c.SubResource(sub).Create(ctx, obj, other, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			defer r.forget(c, obj)
			return c.SubResource(sub).Update(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			defer r.forget(c, obj)
			return c.SubResource(sub).Patch(ctx, obj, p, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			defer r.forgetApplied(obj)
			return c.SubResource(sub).Apply(ctx, obj, opts...)
		},
	})
}

// read answers a question, from memory if it was asked before.
func (r *reads) read(c client.Client, into runtime.Object, question string, ask func(runtime.Object) error) error {
	kind, err := kindOf(c, into)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	said, known := r.known[kind][question]
	if !known {
		fresh := reflect.New(reflect.TypeOf(into).Elem()).Interface().(runtime.Object)
		fresh.GetObjectKind().SetGroupVersionKind(into.GetObjectKind().GroupVersionKind())
		said = answer{object: fresh, err: ask(fresh)}
		if r.known[kind] == nil {
			r.known[kind] = map[string]answer{}
		}
		r.known[kind][question] = said
	}
	if said.err == nil {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(said.object.DeepCopyObject()).Elem())
	}
	return said.err
}

// kindOf returns the kind of an object, or of those in a list.
func kindOf(c client.Client, obj runtime.Object) (schema.GroupKind, error) {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	return schema.GroupKind{Group: gvk.Group, Kind: strings.TrimSuffix(gvk.Kind, "List")}, err
}

func (r *reads) forget(c client.Client, obj runtime.Object) {
	kind, err := kindOf(c, obj)
	r.drop(kind, err == nil)
}

func (r *reads) forgetApplied(obj runtime.ApplyConfiguration) {
	told, ok := obj.(interface {
		GroupVersionKind() schema.GroupVersionKind
	})
	if !ok {
		r.drop(schema.GroupKind{}, false)
		return
	}
	r.drop(told.GroupVersionKind().GroupKind(), true)
}

// drop forgets the answers about one kind, or about all if it cannot be told which.
func (r *reads) drop(kind schema.GroupKind, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known {
		delete(r.known, kind)
	} else {
		clear(r.known)
	}
}
