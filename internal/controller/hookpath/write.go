package hookpath

import (
	"context"
	"fmt"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
)

// hook is a webhook of either kind of configuration.
type hook struct {
	name   string
	client admissionregistration.WebhookClientConfig
}

// judge says which path a webhook is to have, and whether this replica writes it.
type judge func(name, present string) (path string, write bool)

// write gives the webhooks of every configuration their paths. A configuration that is not there belongs to a side that is not installed.
func (p *Paths) write(ctx context.Context, j judge) error {
	for _, name := range p.Validating {
		c, err := cluster.Get[admissionregistration.ValidatingWebhookConfiguration](ctx, p.cached, "", name)
		if err != nil {
			return err
		}
		var hooks []hook
		if c != nil {
			for _, h := range c.Webhooks {
				hooks = append(hooks, hook{h.Name, h.ClientConfig})
			}
		}
		if err := p.patch(ctx, c, hooks, j); err != nil {
			return err
		}
	}
	for _, name := range p.Mutating {
		c, err := cluster.Get[admissionregistration.MutatingWebhookConfiguration](ctx, p.cached, "", name)
		if err != nil {
			return err
		}
		var hooks []hook
		if c != nil {
			for _, h := range c.Webhooks {
				hooks = append(hooks, hook{h.Name, h.ClientConfig})
			}
		}
		if err := p.patch(ctx, c, hooks, j); err != nil {
			return err
		}
	}
	return nil
}

// patch changes the paths of one configuration, all or none. If it is not any more as it was read, the change that was missed brings it back.
func (p *Paths) patch(ctx context.Context, c client.Object, hooks []hook, j judge) error {
	var steps []cluster.Operation
	for i, h := range hooks {
		if h.client.Service == nil {
			continue // a user directs it to another server
		}
		present := ""
		if h.client.Service.Path != nil {
			present = *h.client.Service.Path
		}
		if path, write := j(h.name, present); write {
			steps = append(steps, cluster.Operation{Op: "add", Path: fmt.Sprintf("/webhooks/%d/clientConfig/service/path", i), Value: path})
		}
	}
	if len(steps) == 0 {
		return nil
	}
	err := p.writer.Patch(ctx, c, append([]cluster.Operation{cluster.Unchanged(c)}, steps...)...)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
