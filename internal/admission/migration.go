package admission

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
)

// PathMigration is the path of the webhook for new migrations. A migration that was not checked fails later, or waits for its
// turn, and says why.
const PathMigration = "/validate/virtualmachineinstancemigrations"

// movers looks at who is to move.
type movers struct {
	reader    cluster.Reader
	writer    *cluster.Writer
	namespace string // where the configuration is
	self      string // the user that we are
}

// checkMigration refuses a migration that could not begin. Its words are the ones that clients know. Ourselves, who empty nodes, know
// more than the cache here.
func (m *movers) checkMigration(ctx context.Context, req admission.Request) admission.Response {
	asked, err := decode[kubevirt.VirtualMachineInstanceMigration](req.Object.Raw)
	if err != nil || asked == nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the migration: %w", err))
	}
	if req.UserInfo.Username == m.self {
		return admission.Allowed("")
	}
	name := asked.Spec.VMIName
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, m.reader, req.Namespace, name)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	var all kubevirt.VirtualMachineInstanceMigrationList
	if err := cluster.List(ctx, m.reader, req.Namespace, &all); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	var c causes
	at := specPath.Child("vmiName")
	stopped := asked.Annotations[kubevirt.AnnOffline] == "true"
	switch {
	case stopped:
		if err := m.checkStopped(ctx, &c, req.Namespace, name, i); err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
	case i == nil:
		c.invalid(at, `the VMI "%s/%s" does not exist`, req.Namespace, name)
		return c.response()
	case i.Status.Phase == kubevirt.PhaseSucceeded || i.Status.Phase == kubevirt.PhaseFailed:
		c.invalid(at, "Cannot migrate VMI in finalized state.")
	}
	if !stopped {
		if is := condition(i, "LiveMigratable"); is.Status == corev1.ConditionFalse {
			c.invalid(at, "Cannot migrate VMI, Reason: %s, Message: %s", is.Reason, is.Message)
		}
	}
	for _, o := range all.Items {
		if o.Spec.VMIName == name && !o.Ended() {
			c.invalid(at, "in-flight migration detected. Active migration job (%s) is currently already in progress for VMI %s.", o.UID, name)
			break
		}
	}
	return c.response()
}

// checkStopped: there is a machine whose disks can be copied because it does not run.
func (m *movers) checkStopped(ctx context.Context, c *causes, namespace, name string, i *kubevirt.VirtualMachineInstance) error {
	vm, err := cluster.Get[kubevirt.VirtualMachine](ctx, m.reader, namespace, name)
	switch at := specPath.Child("vmiName"); {
	case err != nil:
		return err
	case vm == nil:
		c.invalid(at, `the VM "%s/%s" does not exist`, namespace, name)
	case i != nil:
		c.invalid(at, "the annotation %s is for machines that do not run: stop it, or leave the annotation out", kubevirt.AnnOffline)
	}
	return nil
}

// condition is one of an instance; empty: it has none of that type.
func condition(i *kubevirt.VirtualMachineInstance, kind string) kubevirt.Condition {
	for _, c := range i.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return kubevirt.Condition{}
}
