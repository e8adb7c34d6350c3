package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/takeover/plan"
	"github.com/berth-vm/berth/internal/virtctl/uninstall"
)

// begun returns the transfers that have begun and are not done, including uploads that wait for their data.
func (f *found) begun() []row {
	return slices.DeleteFunc(slices.Clone(f.rows), func(r row) bool { return r.Verdict != plan.Finished && !slices.Contains(r.Do, plan.Stop) })
}

// Back starts CDI again. Its operator makes the deleted webhooks and API services again.
func Back(ctx context.Context, c *kube.Client, o Options, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errLate)
	defer cancel()
	c, err := quiet(c)
	if err != nil {
		return err
	}
	t := &takeoverRun{client: c, options: o, out: out}
	f, err := find(ctx, c)
	if err != nil {
		return err
	}
	if len(f.programs) == 0 {
		return errors.New("there is no CDI on this cluster that could be started: no Deployment cdi-deployment")
	}
	if busy := f.begun(); len(busy) > 0 {
		return fmt.Errorf("%s and %d others are not done: CDI would not go on with what Berth began; nothing was changed", busy[0].title(), len(busy)-1)
	}
	ours, err := c.Core.AppsV1().Deployments("").List(ctx, metav1.ListOptions{LabelSelector: uninstall.Installed + "=true"})
	if err != nil {
		return fmt.Errorf("look for Berth: %w", err)
	}
	for _, d := range ours.Items {
		if d.Name == "berth-controller" {
			return errors.New("both would write to the same disks: run virtctl uninstall --with-data=keep first; nothing was changed")
		}
	}
	if err := t.mayChange(ctx, &found{}); err != nil {
		return err
	}
	if err := t.suspend(ctx, f.programs, false); err != nil {
		return err
	}
	if err := t.scaleUp(ctx, f.programs); err != nil {
		return err
	}
	t.say("CDI starts again. Claims that Berth has filled are Succeeded for it too.")
	return nil
}
