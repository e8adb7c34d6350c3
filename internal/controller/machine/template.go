package machine

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/livechange"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// A running machine follows its template: hotpluggable volumes that are added to the template or removed from it are added to its instance or
// removed from it, and the machine says which other changes wait for a restart.

// noteTemplate records on an instance which generation of its machine it follows, and which of its volumes are the template's.
func noteTemplate(i *kubevirt.VirtualMachineInstance, vm *kubevirt.VirtualMachine, volumes []string) {
	i.Annotations = with(i.Annotations, kubevirt.AnnGeneration, generation(vm))
	noteVolumes(i, volumes)
}

func noteVolumes(i *kubevirt.VirtualMachineInstance, volumes []string) {
	text, _ := json.Marshal(volumes) // a list of strings
	i.Annotations = with(i.Annotations, kubevirt.AnnTemplateVolumes, string(text))
}

func generation(vm *kubevirt.VirtualMachine) string { return strconv.FormatInt(vm.Generation, 10) }

// templateVolumes are the volumes of an instance that it has from its machine's template; none if that was not recorded.
func templateVolumes(i *kubevirt.VirtualMachineInstance) []string {
	var out []string
	_ = json.Unmarshal([]byte(i.Annotations[kubevirt.AnnTemplateVolumes]), &out) // a record that cannot be read is none
	return out
}

// followed: the instance is as the machine's spec says.
func (w *whole) followed() bool {
	return w.instances() != machine.Living || w.run.instance.Annotations[kubevirt.AnnGeneration] == generation(w.vm)
}

// observeChange compares the instance with the one that the machine would be started with. If that cannot be told, because the template names
// something that is not there, the machine says so and its instance is left as it is.
func (r *Reconciler) observeChange(ctx context.Context, w *whole) error {
	i := w.run.instance
	switch {
	case w.run.launcher == nil || w.means == machine.Restoring:
		return nil // it is about to be started, or to be stopped
	case w.means != machine.Provided:
		w.change = &livechange.Plan{Volumes: i.Spec.Volumes, Disks: i.Spec.Domain.Devices.Disks, FromTemplate: templateVolumes(i), Restart: []string{w.why}}
		return nil
	}
	unready, err := r.unreadyVolumes(ctx, i, w.next.Spec.Volumes)
	if err != nil {
		return err
	}
	plan := livechange.Decide(livechange.Facts{
		Want: w.next.Spec, Has: i.Spec, FromTemplate: templateVolumes(i), Unready: unready, Leaving: w.run.leaving(),
		Migrates: ptr.Deref(w.vm.Spec.UpdateVolumesStrategy, "") == kubevirt.UpdateByMigration,
	})
	w.change = &plan
	return nil
}

// unreadyVolumes are the volumes that are to be in another claim than the instance has, if that claim is not there, is being deleted or is not
// filled. A claim that waits for its first consumer can be had: it is bound when the guest gets it.
func (r *Reconciler) unreadyVolumes(ctx context.Context, i *kubevirt.VirtualMachineInstance, wanted []kubevirt.Volume) ([]string, error) {
	var out []string
	for _, v := range wanted {
		name, _ := render.ClaimOf(v)
		listed := func(x kubevirt.Volume) bool {
			has, _ := render.ClaimOf(x)
			return x.Name == v.Name && has == name
		}
		if name == "" || slices.ContainsFunc(i.Spec.Volumes, listed) {
			continue
		}
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, i.Namespace, name)
		if err != nil {
			return nil, err
		}
		if c == nil || c.DeletionTimestamp != nil || c.Status.Phase != corev1.ClaimPending && unfilled(c) {
			out = append(out, v.Name)
		}
	}
	return out, nil
}

func unfilled(c *corev1.PersistentVolumeClaim) bool {
	_, lacks := clonesource.Complete(c)
	return lacks != ""
}

// followTemplate gives the instance the volumes that the machine's template has now. It reports whether it changed anything.
func (r *Reconciler) followTemplate(ctx context.Context, w *whole) (bool, error) {
	if w.change == nil {
		return false, nil
	}
	i := w.run.instance.DeepCopy()
	i.Spec.Volumes, i.Spec.Domain.Devices.Disks = w.change.Volumes, w.change.Disks
	noteVolumes(i, w.change.FromTemplate)
	if len(w.change.Restart) == 0 && len(w.change.Waiting) == 0 {
		noteTemplate(i, w.vm, w.change.FromTemplate)
	}
	if equality.Semantic.DeepEqual(w.run.instance, i) {
		return false, nil
	}
	return true, r.cluster.Change(ctx, w.run.instance, i)
}

// leaving are the volumes that were removed from the instance and whose disks the guest, or their pods, still have.
func (s *run) leaving() []string {
	var out []string
	for _, h := range s.hot {
		if !h.wanted {
			out = append(out, h.name)
		}
	}
	for _, name := range s.removedVolumes() {
		if !slices.Contains(s.returns.Given, name) {
			out = append(out, name)
		}
	}
	return out
}

// removedVolumes are those that the launcher was started with, and that the instance lists no more, or with another disk.
func (s *run) removedVolumes() []string {
	var out []string
	for _, v := range s.launcher.Spec.Volumes {
		listed := func(x kubevirt.Volume) bool { return x.Name == v.Name && coldVolume(s.launcher, x) }
		if v.PersistentVolumeClaim != nil && !slices.ContainsFunc(s.instance.Spec.Volumes, listed) {
			out = append(out, v.Name)
		}
	}
	for _, v := range launcherpod.Machine(s.launcher).Spec.Volumes {
		listed := func(x kubevirt.Volume) bool { return x.Name == v.Name && x.Networked() && startedWith(s.launcher, x) }
		if v.Networked() && !slices.ContainsFunc(s.instance.Spec.Volumes, listed) {
			out = append(out, v.Name)
		}
	}
	return out
}

// exchanged: the guest gets the new disk of a volume in place of the old one while it runs.
func (s *run) exchanged(has, want kubevirt.Volume, unready []string) bool {
	return livechange.Facts{Has: s.instance.Spec, Migrates: s.updates.live, FromTemplate: templateVolumes(s.instance), Unready: unready}.Exchanges(has, want)
}

// restartRequired is said of a machine with changes that wait for a restart.
func (w *whole) restartRequired(u updatePlan) []kubevirt.Condition {
	c := kubevirt.Condition{Type: "RestartRequired", Status: corev1.ConditionTrue}
	var texts []string
	if u.text != "" && u.row.Restart {
		c.Reason, texts = string(u.row.Reason), append(texts, u.text)
	}
	if w.change != nil && len(w.change.Restart) > 0 {
		row := state.OfUpdate(state.TemplateChanged)
		texts = append(texts, row.Text(strings.Join(w.change.Restart, ", ")))
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
