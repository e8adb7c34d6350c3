// Package takeover replaces CDI by Berth on a cluster, and Berth by CDI again. internal/virtctl/takeover/plan decides what happens
// to each volume; this package reads the cluster, carries it out in an order in which no one else writes what CDI writes, and can
// be repeated after every step.
//
// CDI's programs are scaled down, and of their objects only the webhooks and API services are deleted, so that CDI can be started again.
package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/takeover/plan"
)

// Options are the flags and arguments of the command.
type Options struct {
	Manifest []byte // Berth's objects; nil if they are applied separately
	Timeout  time.Duration
}

// Check returns what a takeover would do, and changes nothing. It is an error if it would be refused.
func Check(ctx context.Context, c *kube.Client, out io.Writer) error {
	c, err := quiet(c)
	if err != nil {
		return err
	}
	f, err := find(ctx, c)
	if err != nil {
		return err
	}
	if err := f.write(out); err != nil {
		return err
	}
	return f.refused()
}

// Run takes over. It changes nothing before all checks have passed.
func Run(ctx context.Context, c *kube.Client, o Options, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errLate)
	defer cancel()
	c, err := quiet(c)
	if err != nil {
		return err
	}
	err = (&takeoverRun{client: c, options: o, out: out}).run(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errLate) {
		return fmt.Errorf("not done after %s: %w; run the command again to go on, or virtctl takeover --back", o.Timeout, err)
	}
	return err
}

// quiet returns the client without the API server's warnings: one of CDI's kinds is deprecated, and would be said so with every
// look at it.
func quiet(c *kube.Client) (*kube.Client, error) {
	config := rest.CopyConfig(c.Config)
	config.WarningHandler = rest.NoWarnings{}
	return kube.New(config, c.Namespace)
}

var errLate = errors.New("the time is over")

func (t *takeoverRun) run(ctx context.Context) error {
	f, err := find(ctx, t.client)
	if err != nil {
		return err
	}
	if err := f.refused(); err != nil {
		return err
	}
	if err := t.mayChange(ctx, f); err != nil {
		return err
	}
	if f, err = t.stop(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *found) error{t.settle, t.disconnect, t.install} {
		if err := step(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// takeoverRun is one on its way.
type takeoverRun struct {
	client  *kube.Client
	options Options
	out     io.Writer
}

func (t *takeoverRun) say(format string, args ...any) {
	_, _ = fmt.Fprintf(t.out, format+"\n", args...) // the terminal was closed
}

const interval = time.Second

// stop stops CDI when it fills no volume. It also waits for transfers that begin meanwhile; if one begins just before the
// controller has stopped, the controller is started again.
func (t *takeoverRun) stop(ctx context.Context) (*found, error) {
	for {
		f, err := t.calm(ctx)
		if err != nil {
			return nil, err
		}
		t.say("Stopping CDI")
		if err := t.scaleDown(ctx, f.programs, operatorName, controllerName); err != nil {
			return nil, err
		}
		if f, err = find(ctx, t.client); err != nil {
			return nil, err
		}
		if len(f.with(plan.Finished)) == 0 && f.refused() == nil {
			return f, t.scaleDown(ctx, f.programs, apiName, proxyName)
		}
		t.say("Something began meanwhile: CDI goes on")
		if err := t.scaleUp(ctx, f.programs); err != nil {
			return nil, err
		}
	}
}

// calm waits until CDI fills no volume, and prints the volumes that it waits for.
func (t *takeoverRun) calm(ctx context.Context) (*found, error) {
	var f *found
	said := 0
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		var err error
		if f, err = find(ctx, t.client); err != nil {
			return false, err
		}
		busy := f.with(plan.Finished)
		if n := len(busy); n > 0 && n != said {
			t.say("CDI finishes %d, first %s: %s", n, busy[0].title(), busy[0].Why)
			said = n
		}
		return len(busy) == 0, f.refused()
	})
	return f, err
}

// with returns the rows of a verdict.
func (f *found) with(v plan.Verdict) []row {
	var out []row
	for _, r := range f.rows {
		if r.Verdict == v {
			out = append(out, r)
		}
	}
	return out
}

func (f *found) refused() error {
	switch no := f.with(plan.Refused); {
	case len(f.programs) == 0:
		return errors.New("there is no CDI on this cluster: no Deployment cdi-deployment")
	case len(no) == 0:
		return nil
	case len(no) == 1:
		return fmt.Errorf("%s: %s; nothing was changed", no[0].title(), no[0].Why)
	default:
		return fmt.Errorf("%s and %d others stand in the way: %s; virtctl takeover check lists them; nothing was changed", no[0].title(), len(no)-1, no[0].Why)
	}
}

// write writes what was found as a table.
func (f *found) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAMESPACE\tWHAT\tVERDICT\tWHY")
	for _, p := range f.programs {
		_, _ = fmt.Fprintf(w, "%s\tDeployment/%s\tstopped\tscaled to 0; --back scales it to %d again\n", p.Namespace, p.Name, replicas(&p))
	}
	for _, r := range f.rows {
		_, _ = fmt.Fprintf(w, "%s\t%s/%s\t%s\t%s\n", r.namespace, r.kind, r.name, r.Verdict, r.Why)
	}
	for _, r := range f.calls {
		_, _ = fmt.Fprintf(w, "\t%s\tdeleted\tit calls CDI, which answers no more; Berth has its own, and CDI makes it again\n", r.title())
	}
	return w.Flush()
}
