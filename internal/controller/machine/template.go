package machine

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launchers"
	"github.com/berth-vm/berth/internal/livechange"
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

// observeChange compares the instance with the one that the machine would be started with.
func (w *whole) observeChange() {
	if w.means != machine.Provided || w.run.launcher == nil {
		return // it cannot be told, or is about to be started
	}
	plan := livechange.Decide(livechange.Facts{
		Want: w.next.Spec, Has: w.run.instance.Spec, FromTemplate: templateVolumes(w.run.instance), Leaving: w.run.leaving(),
		Migrates: ptr.Deref(w.vm.Spec.UpdateVolumesStrategy, "") == kubevirt.UpdateByMigration,
	})
	w.change = &plan
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
	if same(w.run.instance, i) {
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
	for _, v := range launchers.Machine(s.launcher).Spec.Volumes {
		listed := func(x kubevirt.Volume) bool { return x.Name == v.Name && x.Networked() && startedWith(s.launcher, x) }
		if v.Networked() && !slices.ContainsFunc(s.instance.Spec.Volumes, listed) {
			out = append(out, v.Name)
		}
	}
	return out
}

// exchanged: the guest gets the new disk of a volume in place of the old one while it runs.
func (s *run) exchanged(has, want kubevirt.Volume) bool {
	return livechange.Facts{Has: s.instance.Spec, Migrates: s.updates.live, FromTemplate: templateVolumes(s.instance)}.Exchanges(has, want)
}

// restartRequired is said of a machine with changes that wait for a restart.
func (w *whole) restartRequired() []kubevirt.Condition {
	c := kubevirt.Condition{Type: "RestartRequired", Status: corev1.ConditionTrue}
	var texts []string
	if w.run != nil && w.run.updates.text != "" && w.run.updates.row.Restart {
		c.Reason, texts = string(w.run.updates.row.Reason), append(texts, w.run.updates.text)
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
