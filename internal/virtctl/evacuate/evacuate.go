// Package evacuate moves the machines of a node away, as a drain does, and shows the progress of each. It asks for the eviction of
// their pods: the cluster decides what happens to each machine.
package evacuate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Options are the flags and arguments of the command.
type Options struct {
	Node     string
	Cordon   bool
	ShutDown bool
	Selector labels.Selector // of instances
	Timeout  time.Duration   // 0: none
}

// askAgain is how often the eviction of a pod is requested, as kubectl drain does.
const askAgain = 5 * time.Second

const interval = time.Second

// leaving is a machine that is to leave.
type leaving struct {
	namespace, name string
	uid             types.UID
	says            string
	gone            bool   // from the node
	stays           string // why it is left alone; empty: it is not
	asked           time.Time
	sent, total     int64
}

func (m *leaving) title() string { return m.namespace + "/" + m.name }

// Run has all machines leave, and returns when none is left that could.
func Run(ctx context.Context, c *kube.Client, o Options, out io.Writer) error {
	if _, err := c.Core.CoreV1().Nodes().Get(ctx, o.Node, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("read node %s: %w", o.Node, err)
	}
	if o.Cordon {
		patch := []byte(`{"spec":{"unschedulable":true}}`)
		if _, err := c.Core.CoreV1().Nodes().Patch(ctx, o.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("cordon node %s: %w", o.Node, err)
		}
		_, _ = fmt.Fprintf(out, "node/%s cordoned\n", o.Node)
	}
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	e := &evacuation{client: c, options: o, show: newScreen(out)}
	err := wait.PollUntilContextCancel(ctx, interval, true, e.step)
	if errors.Is(err, context.DeadlineExceeded) && o.Timeout > 0 {
		return fmt.Errorf("after %s there are machines on node %s still: %s; what was begun goes on", o.Timeout, o.Node, e.rest())
	}
	if err != nil {
		return err
	}
	if rest := e.rest(); rest != "" {
		return &stayError{fmt.Errorf("machines stay on node %s: %s", o.Node, rest)}
	}
	_, err = fmt.Fprintf(out, "No virtual machine is left on node %s\n", o.Node)
	return err
}

// stayError are machines that stay.
type stayError struct{ error }

// Advice returns what to do about them.
func (*stayError) Advice() string {
	return "Make them movable (see the condition LiveMigratable of each), stop them, or let them be shut down with --shut-down."
}

type evacuation struct {
	client  *kube.Client
	options Options
	all     []*leaving
	show    *screen
}

// rest names those that are on the node.
func (e *evacuation) rest() string {
	var names []string
	for _, m := range e.all {
		if !m.gone {
			names = append(names, m.title())
		}
	}
	return strings.Join(names, ", ")
}

// step looks at every machine of the node once, asks for those that are due, and shows what is known.
func (e *evacuation) step(ctx context.Context) (done bool, err error) {
	instances, err := kube.Instances.List(ctx, e.client.In(""))
	if err != nil {
		return false, err
	}
	migrations, err := kube.Migrations.List(ctx, e.client.In(""))
	if err != nil {
		return false, err
	}
	here := map[types.UID]*kubevirt.VirtualMachineInstance{}
	for n := range instances {
		i := &instances[n]
		if i.Status.NodeName == e.options.Node && e.options.Selector.Matches(labels.Set(i.Labels)) && i.Status.Phase != kubevirt.PhaseSucceeded && i.Status.Phase != kubevirt.PhaseFailed {
			here[i.UID] = i
			e.add(i)
		}
	}
	done = true
	for _, m := range e.all {
		i := here[m.uid]
		m.look(i, migrations)
		if i != nil && m.stays == "" {
			if err := e.ask(ctx, m, i); err != nil {
				return false, err
			}
		}
		done = done && (m.gone || m.stays != "")
	}
	e.show.draw(e.all)
	return done, nil
}

func (e *evacuation) add(i *kubevirt.VirtualMachineInstance) {
	if !slices.ContainsFunc(e.all, func(m *leaving) bool { return m.uid == i.UID }) {
		e.all = append(e.all, &leaving{namespace: i.Namespace, name: i.Name, uid: i.UID, says: "about to be asked for"})
	}
}

// look records the state of a machine; i is nil when it is no longer on the node.
func (m *leaving) look(i *kubevirt.VirtualMachineInstance, migrations []kubevirt.VirtualMachineInstanceMigration) {
	m.gone = i == nil
	if m.gone {
		m.says = "has left"
	}
	for _, g := range migrations {
		if g.Namespace != m.namespace || g.Spec.VMIName != m.name {
			continue
		}
		if s := g.Status.MigrationState; m.gone && g.Status.Phase == kubevirt.MigrationSucceeded && s != nil {
			m.says = "moved to node " + s.TargetNode
		}
		if !g.Ended() && !m.gone {
			m.sent, m.total = g.Status.SentBytes, g.Status.TotalBytes
			m.says = message(g.Status.Conditions, "Ready", string(g.Status.Phase))
			return
		}
	}
	if i != nil {
		m.says = message(i.Status.Conditions, "EvictionRequested", m.says)
	}
}

func message(all []kubevirt.Condition, kind, otherwise string) string {
	for _, c := range all {
		if c.Type == kind {
			return c.Message
		}
	}
	return otherwise
}

// ask asks for the eviction of a machine's pod: first whether it would just be shut down.
func (e *evacuation) ask(ctx context.Context, m *leaving, i *kubevirt.VirtualMachineInstance) error {
	if time.Since(m.asked) < askAgain {
		return nil
	}
	m.asked = time.Now()
	pod, err := launcherOn(ctx, e.client, i, e.options.Node)
	if err != nil || pod == nil {
		return err // it has just left
	}
	if !e.options.ShutDown {
		err := e.evict(ctx, pod, metav1.DryRunAll)
		switch {
		case err == nil:
			m.stays = "it would be shut down: its evictionStrategy is None, or it cannot move"
			m.says = m.stays
			return nil
		case !apierrors.IsTooManyRequests(err):
			return ignoreMissing(err)
		}
	}
	err = e.evict(ctx, pod)
	if err == nil {
		m.says = "is being shut down"
		return nil
	}
	if !apierrors.IsTooManyRequests(err) {
		return ignoreMissing(err)
	}
	if i.Status.EvacuationNodeName == "" {
		m.says = reason(err)
	}
	if is := slices.IndexFunc(i.Status.Conditions, func(c kubevirt.Condition) bool { return c.Type == "LiveMigratable" }); is >= 0 &&
		i.Status.Conditions[is].Status == corev1.ConditionFalse {
		m.stays, m.says = i.Status.Conditions[is].Message, "stays: "+i.Status.Conditions[is].Message
	}
	return nil
}

// reason returns what the cluster said, without the name of the webhook that said it.
func reason(err error) string {
	if _, text, ok := strings.Cut(err.Error(), "denied the request: "); ok {
		return text
	}
	return err.Error()
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil // it has just left
	}
	return fmt.Errorf("ask for an eviction: %w", err)
}

func (e *evacuation) evict(ctx context.Context, pod *corev1.Pod, dryRun ...string) error {
	return e.client.Core.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun},
	})
}
