package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// delete deletes what was installed of some kinds, and waits until it is gone.
func (u *uninstallation) delete(ctx context.Context, title string, of func(object) bool) error {
	var some []object
	for _, o := range u.all {
		if of(o) {
			some = append(some, o)
		}
	}
	if u.options.DryRun {
		for _, o := range some {
			_, _ = fmt.Fprintln(u.out, "would delete", o.title())
		}
		return nil
	}
	_, _ = fmt.Fprintf(u.out, "Removing %s (%d)\n", title, len(some))
	foreground := metav1.DeletePropagationForeground // a program is gone when its pods are
	for _, o := range some {
		uid := o.GetUID()
		err := o.in(u.client).Delete(ctx, o.GetName(), metav1.DeleteOptions{
			PropagationPolicy: &foreground, Preconditions: &metav1.Preconditions{UID: &uid},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete %s: %w", o.title(), err)
		}
	}
	for _, o := range some {
		if err := u.awaitEnd(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

const interval = 300 * time.Millisecond

func (u *uninstallation) awaitEnd(ctx context.Context, o object) error {
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) { return isGone(ctx, u.client, o) })
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s is still there after %s: kubectl describe says what it waits for; run the command again to go on",
			o.title(), u.options.Timeout)
	}
	return err
}

// dropFinalizers removes Berth's finalizers from all objects, so that they can be deleted when Berth's controllers are gone.
func (u *uninstallation) dropFinalizers(ctx context.Context) error {
	kinds := []schema.GroupVersionResource{
		{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "persistentvolumeclaims"},
	}
	for _, d := range u.definitions {
		kinds = append(kinds, d.resource)
	}
	for _, kind := range kinds {
		objects, err := listAll(ctx, u.client, kind, "")
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := u.dropFinalizersOf(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *uninstallation) dropFinalizersOf(ctx context.Context, o object) error {
	kept := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), u.isOurs)
	switch {
	case len(kept) == len(o.GetFinalizers()):
		return nil
	case u.options.DryRun:
		_, err := fmt.Fprintln(u.out, "would take Berth's finalizers from", o.title())
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers": kept, "resourceVersion": o.GetResourceVersion(), // no one else's is lost
	}})
	if err != nil {
		return err
	}
	_, err = o.in(u.client).Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsConflict(err) {
		now, readErr := o.in(u.client).Get(ctx, o.GetName(), metav1.GetOptions{})
		if readErr == nil {
			return u.dropFinalizersOf(ctx, object{*now, o.resource})
		}
		err = readErr
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take Berth's finalizers from %s: %w", o.title(), err)
	}
	return nil
}

// isOurs reports whether a finalizer is one of Berth's: of its own domain, or of a group whose kinds were installed with it.
func (u *uninstallation) isOurs(finalizer string) bool {
	domain, _, _ := strings.Cut(finalizer, "/")
	return domain == "berth.dev" || slices.ContainsFunc(u.definitions, func(d definition) bool { return d.resource.Group == domain })
}
