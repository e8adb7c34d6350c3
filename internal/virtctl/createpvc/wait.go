package createpvc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/bar"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/pkg/claim"
)

const (
	annProgress = "cdi.kubevirt.io/storage.populator.progress"

	interval = 500 * time.Millisecond
	// short is how long a consumer that was created together with the claim may take to be seen by the scheduler.
	short = 2 * time.Second
)

// heldError is the error for a claim that waits for its first consumer.
type heldError struct{ claim string }

func (h *heldError) Error() string {
	return "cannot wait for PersistentVolumeClaim in state WaitForFirstConsumer"
}

// Advice returns what binds it.
func (h *heldError) Advice() string {
	return fmt.Sprintf("PVC %s is bound, and filled if it has a source, when the first pod or VM uses it: start one, or leave --wait out.", h.claim)
}

// Wait waits until the claim is bound and so, if it has a source, filled. It draws the progress on out. It returns an error at
// once if the class waits for a consumer and no pod uses the claim.
func Wait(ctx context.Context, c *kube.Client, name string, limit time.Duration, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	line, drawn := bar.Percent(out), false
	began, last := time.Now(), ""
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		pvc, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("read PVC %s: %w", name, err)
		}
		last = string(pvc.Status.Phase)
		if part, ok := progress(pvc); ok {
			drawn = true
			line.Set(part, whole)
		}
		if pvc.Status.Phase == corev1.ClaimBound {
			return true, nil
		}
		if time.Since(began) > short && waits(ctx, c, pvc) {
			return false, &heldError{claim: name}
		}
		return false, nil
	})
	if drawn {
		if err == nil {
			line.Set(whole, whole)
		}
		line.End()
	}
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		return fmt.Errorf("PVC %s is still %s after %s; kubectl describe pvc %s says why", name, last, limit, name)
	}
	return err
}

var errTooLong = errors.New("time limit")

// whole is 100 % with two decimals.
const whole = 10000

func progress(pvc *corev1.PersistentVolumeClaim) (int64, bool) {
	text, ok := pvc.Annotations[annProgress]
	percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if !ok || err != nil || percent < 0 || percent > 100 {
		return 0, false
	}
	return int64(percent * whole / 100), true
}

// waits reports whether the class binds for a consumer, and the scheduler has seen none.
func waits(ctx context.Context, c *kube.Client, pvc *corev1.PersistentVolumeClaim) bool {
	name := ptr.Deref(pvc.Spec.StorageClassName, "")
	if name == "" || pvc.Annotations[names.SelectedNode] != "" {
		return false
	}
	class, err := c.Core.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	return err == nil && claim.Waits(class)
}
