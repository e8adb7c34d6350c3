package evacuate

import (
	"context"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Cancel keeps the remaining machines on a node: it cancels the migrations that were made to empty it, and withdraws the eviction
// requests. A drain that is still under way asks again, and is not followed for five minutes.
func Cancel(ctx context.Context, c *kube.Client, o Options, out io.Writer) error {
	instances, err := kube.Instances.List(ctx, c.In(""))
	if err != nil {
		return err
	}
	migrations, err := kube.Migrations.List(ctx, c.In(""))
	if err != nil {
		return err
	}
	kept := 0
	for n := range instances {
		i := &instances[n]
		if i.Status.NodeName != o.Node || i.Status.EvacuationNodeName != o.Node || !o.Selector.Matches(labels.Set(i.Labels)) {
			continue
		}
		moving := false
		for _, m := range migrations {
			if m.Namespace == i.Namespace && m.Spec.VMIName == i.Name && m.Annotations[kubevirt.AnnEvacuation] == o.Node && !m.Ended() {
				if err := kube.Migrations.Delete(ctx, c.In(m.Namespace), m.Name, nil); err != nil {
					return err
				}
				moving = true
			}
		}
		if !moving { // it waits for its next try; with a migration the mark goes when that has ended
			if err := unmark(ctx, c, i, o.Node); err != nil {
				return fmt.Errorf("keep %s/%s: %w", i.Namespace, i.Name, err)
			}
		}
		kept++
		_, _ = fmt.Fprintf(out, "%s/%s stays, unless it has left already\n", i.Namespace, i.Name)
	}
	if kept == 0 {
		_, _ = fmt.Fprintf(out, "No virtual machine is about to leave node %s\n", o.Node)
	}
	_, err = fmt.Fprintf(out, "If the node takes no new pods: kubectl uncordon %s\n", o.Node)
	return err
}

// unmark removes the mark that asks a machine to leave the node. The mark of a machine that has left was deleted with its pod.
func unmark(ctx context.Context, c *kube.Client, i *kubevirt.VirtualMachineInstance, node string) error {
	pod, err := launcherOn(ctx, c, i, node)
	if err != nil || pod == nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, render.AnnEvacuate)
	_, err = c.Core.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
