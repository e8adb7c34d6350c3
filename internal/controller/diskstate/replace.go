package diskstate

import (
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// Stays reports whether the disk's claim is left behind when the guest moves.
func (d Disk) Stays() bool { return d.Claim != nil && d.Direct == nil && !shared(d.Claim) }

// ClaimIn is the claim that a launcher has for a volume: the one that the volume names, or its replacement.
func ClaimIn(launcher *corev1.Pod, v kubevirt.Volume) string {
	name, _ := render.ClaimOf(v)
	if name == "" || launcherpod.Incoming(launcher) == "" {
		return name
	}
	m := launcherpod.Machine(launcher)
	if m.Updated[v.Name] == name {
		if in := UpdatedClaims(launcher)[v.Name]; hasClaim(launcher, v.Name, in) {
			return in // the guest has come, and the instance is about to be told
		}
	}
	other := render.ReplacementName(types.UID(m.Incoming), v.Name)
	was := func(o kubevirt.Volume) bool {
		of, _ := render.ClaimOf(o)
		return o.Name == v.Name && of == name
	}
	if hasClaim(launcher, v.Name, other) && slices.ContainsFunc(m.Spec.Volumes, was) {
		return other
	}
	return name
}

// hasClaim: the pod has that claim as its volume of that name.
func hasClaim(p *corev1.Pod, volume, claim string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(x corev1.Volume) bool {
		return x.Name == volume && x.PersistentVolumeClaim != nil && x.PersistentVolumeClaim.ClaimName == claim
	})
}

// Replacements are the volumes for which a launcher has another claim, and that claim's name. What its instance lists now is no matter: a
// disk that is removed while the guest moves has moved.
func Replacements(launcher *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, v := range launcherpod.Machine(launcher).Spec.Volumes {
		name, _ := render.ClaimOf(v)
		if in := ClaimIn(launcher, v); in != name {
			out[v.Name] = in
		}
	}
	return out
}

// Others are the claims that a target has in place of those that the guest's disks are in, by volume.
func Others(target *corev1.Pod) map[string]string {
	out := Replacements(target)
	maps.Copy(out, UpdatedClaims(target))
	return out
}

var errUnbound = errors.New("it has no volume yet")

// NotYet has a step tried again: a claim has no volume yet, or the cache does not know of it.
func NotYet(claim string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, claim, errUnbound)
}
