package vm

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/volumeupdate"
	"github.com/berth-vm/berth/internal/state"
)

// followTemplate gives the instance the volumes that the machine's template has now. It reports whether it changed anything.
func (r *Reconciler) followTemplate(ctx context.Context, w *compose.Machine) (bool, error) {
	if w.Change == nil {
		return false, nil
	}
	i := w.Instance.Object.DeepCopy()
	i.Spec.Volumes, i.Spec.Domain.Devices.Disks = w.Change.Volumes, w.Change.Disks
	observed.NoteVolumes(i, w.Change.FromTemplate)
	if len(w.Change.Restart) == 0 && len(w.Change.Waiting) == 0 {
		observed.NoteTemplate(i, w.Object, w.Change.FromTemplate)
	}
	if equality.Semantic.DeepEqual(w.Instance.Object, i) {
		return false, nil
	}
	return true, r.Cluster.Change(ctx, w.Instance.Object, i)
}

// restartRequired returns the condition of a machine with changes that wait for a restart.
func restartRequired(w *compose.Machine, u volumeupdate.Plan) []kubevirt.Condition {
	c := kubevirt.Condition{Type: "RestartRequired", Status: corev1.ConditionTrue}
	var texts []string
	if u.Text != "" && u.Row.Restart {
		c.Reason, texts = string(u.Row.Reason), append(texts, u.Text)
	}
	if w.Change != nil && len(w.Change.Restart) > 0 {
		row := state.OfUpdate(state.TemplateChanged)
		texts = append(texts, row.Text(strings.Join(w.Change.Restart, ", ")))
		if c.Reason == "" {
			c.Reason = string(row.Reason)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	c.Message = strings.Join(texts, "; ")
	return []kubevirt.Condition{c}
}
