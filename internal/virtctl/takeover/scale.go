package takeover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// AnnReplicas on a Deployment of CDI is how many replicas it had.
const AnnReplicas = "berth.dev/cdi-replicas"

// replicas returns how many a program of CDI has, or had before it was stopped.
func replicas(d *appsv1.Deployment) int32 {
	if n, err := strconv.ParseInt(d.Annotations[AnnReplicas], 10, 32); err == nil && n > 0 {
		return int32(n)
	}
	return max(1, ptr.Deref(d.Spec.Replicas, 1))
}

func (t *takeoverRun) scale(ctx context.Context, d *appsv1.Deployment, to int32, note any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{AnnReplicas: note}}, "spec": map[string]any{"replicas": to},
	})
	if err == nil {
		_, err = t.client.Core.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("scale Deployment %s/%s to %d: %w", d.Namespace, d.Name, to, err)
	}
	return nil
}

// scaleDown stops some programs one after the other, and waits until no pod of theirs is left.
func (t *takeoverRun) scaleDown(ctx context.Context, all []appsv1.Deployment, some ...string) error {
	for i := range all {
		d := &all[i]
		if !slices.Contains(some, d.Name) {
			continue
		}
		if err := t.scale(ctx, d, 0, strconv.Itoa(int(replicas(d)))); err != nil {
			return err
		}
		selector := metav1.FormatLabelSelector(d.Spec.Selector)
		err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
			pods, err := t.client.Core.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
			return err == nil && len(pods.Items) == 0, err
		})
		if err != nil {
			return fmt.Errorf("wait until Deployment %s/%s has no pods: %w", d.Namespace, d.Name, err)
		}
	}
	return nil
}

// pollers are CDI's programs that look by the clock whether the image of a cron is a new one: the label of their CronJobs.
const pollers = "cdi.kubevirt.io/dataImportCronNs"

// suspend stops CDI's pollers, or lets them continue.
func (t *takeoverRun) suspend(ctx context.Context, all []appsv1.Deployment, stop bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, stop)
	seen := map[string]bool{}
	for _, d := range all {
		if seen[d.Namespace] {
			continue
		}
		seen[d.Namespace] = true
		jobs := t.client.Core.BatchV1().CronJobs(d.Namespace)
		found, err := jobs.List(ctx, metav1.ListOptions{LabelSelector: pollers})
		if err != nil {
			return fmt.Errorf("list CDI's pollers: %w", err)
		}
		for i := range found.Items {
			if _, err := jobs.Patch(ctx, found.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("suspend CronJob %s/%s: %w", d.Namespace, found.Items[i].Name, err)
			}
		}
	}
	return nil
}

// scaleUp starts the Deployments again, the operator last, so that it finds all others running.
func (t *takeoverRun) scaleUp(ctx context.Context, all []appsv1.Deployment) error {
	for i := range slices.Backward(all) {
		if err := t.scale(ctx, &all[i], replicas(&all[i]), nil); err != nil {
			return err
		}
	}
	return nil
}
