package observed

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/livechange"
	"github.com/berth-vm/berth/internal/render"
)

// A running machine follows its template: hotpluggable volumes that are added to the template or removed from it are added to its instance or
// removed from it, and the machine says which other changes wait for a restart.

// NoteTemplate records on an instance which generation of its machine it follows, and which of its volumes are the template's.
func NoteTemplate(i *kubevirt.VirtualMachineInstance, vm *kubevirt.VirtualMachine, volumes []string) {
	i.Annotations = With(i.Annotations, kubevirt.AnnGeneration, Generation(vm))
	NoteVolumes(i, volumes)
}

// NoteVolumes records on an instance which of its volumes are its template's.
func NoteVolumes(i *kubevirt.VirtualMachineInstance, volumes []string) {
	text, _ := json.Marshal(volumes) // a list of strings
	i.Annotations = With(i.Annotations, kubevirt.AnnTemplateVolumes, string(text))
}

// Generation returns the generation of a machine as an annotation has it.
func Generation(vm *kubevirt.VirtualMachine) string { return strconv.FormatInt(vm.Generation, 10) }

// TemplateVolumes are the volumes of an instance that it has from its machine's template; none if that was not recorded.
func TemplateVolumes(i *kubevirt.VirtualMachineInstance) []string {
	var out []string
	_ = json.Unmarshal([]byte(i.Annotations[kubevirt.AnnTemplateVolumes]), &out) // a record that cannot be read is none
	return out
}

// UnreadyVolumes are the volumes that are to be in another claim than the instance has, if that claim is not there, is being deleted or is not
// filled. A claim that waits for its first consumer can be had: it is bound when the guest gets it.
func (r *Reader) UnreadyVolumes(ctx context.Context, i *kubevirt.VirtualMachineInstance, wanted []kubevirt.Volume) ([]string, error) {
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
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Cached, i.Namespace, name)
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

// Leaving are the volumes that were removed from the instance and whose disks the guest, or their pods, still have.
func (s *Instance) Leaving() []string {
	var out []string
	for _, h := range s.Added {
		if !h.Wanted {
			out = append(out, h.Name)
		}
	}
	for _, name := range s.removedVolumes() {
		if !slices.Contains(s.Returns.Given, name) {
			out = append(out, name)
		}
	}
	return out
}

// removedVolumes returns the volumes that the launcher was started with, and that the instance no longer lists, or lists with another disk.
func (s *Instance) removedVolumes() []string {
	var out []string
	opened := launcherpod.Machine(s.Launcher).Opened
	for _, v := range s.Launcher.Spec.Volumes {
		listed := func(x kubevirt.Volume) bool { return x.Name == v.Name && diskstate.StartedWithClaim(s.Launcher, x) }
		medium := func(x string) bool { return (render.Copy{Volume: x}).VolumeName() == v.Name }
		if v.PersistentVolumeClaim != nil && !slices.ContainsFunc(s.Object.Spec.Volumes, listed) && !slices.ContainsFunc(opened, medium) {
			out = append(out, v.Name)
		}
	}
	for _, v := range launcherpod.Machine(s.Launcher).Spec.Volumes {
		listed := func(x kubevirt.Volume) bool {
			return x.Name == v.Name && x.Networked() && diskstate.StartedWith(s.Launcher, x)
		}
		if v.Networked() && !slices.ContainsFunc(s.Object.Spec.Volumes, listed) {
			out = append(out, v.Name)
		}
	}
	return out
}

// exchanged: the guest gets the new disk of a volume in place of the old one while it runs.
func (s *Instance) exchanged(has, want kubevirt.Volume, unready []string) bool {
	return livechange.Facts{Has: s.Object.Spec, Migrates: s.Updates.Live, FromTemplate: TemplateVolumes(s.Object), Unready: unready}.Exchanges(has, want)
}
