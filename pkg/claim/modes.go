package claim

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// offer is one way a class provides volumes, and where that is known from.
type offer struct {
	sets []cdiv1.ClaimPropertySet
	from string // "StorageProfile fast"
}

// offers returns the property sets of the chosen class, best first: what an administrator wrote, else what the profile controller
// found, else, for a class whose profile does not exist (yet), the known properties of its provisioner.
func (b *builder) offers() offer {
	if p := b.profile(); p != nil {
		sets := p.Spec.ClaimPropertySets
		if len(sets) == 0 {
			sets = p.Status.ClaimPropertySets
		}
		return offer{sets: usable(sets), from: "StorageProfile " + p.Name}
	}
	if b.out.Class == nil {
		return offer{}
	}
	known, _ := Recognize(b.out.Class)
	return offer{sets: known.Sets, from: "provisioner " + b.out.Class.Provisioner}
}

// usable leaves out sets without access modes: a claim cannot be made of them.
func usable(sets []cdiv1.ClaimPropertySet) []cdiv1.ClaimPropertySet {
	return slices.DeleteFunc(slices.Clone(sets), func(s cdiv1.ClaimPropertySet) bool { return len(s.AccessModes) == 0 })
}

func modeOf(s cdiv1.ClaimPropertySet) corev1.PersistentVolumeMode {
	if s.VolumeMode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *s.VolumeMode
}

// chooseModes takes the first property set that agrees with whatever the request does say.
func (b *builder) chooseModes() error {
	spec := &b.out.Spec
	if spec.VolumeMode != nil && *spec.VolumeMode == cdiv1.PersistentVolumeFromStorageProfile {
		spec.VolumeMode = nil
	}
	if spec.VolumeMode == nil && b.request.Archive {
		b.setVolumeMode(corev1.PersistentVolumeFilesystem, "an archive is unpacked into a filesystem")
	}
	if spec.VolumeMode != nil && len(spec.AccessModes) > 0 {
		return nil
	}
	if len(spec.AccessModes) == 0 && b.className() == "" {
		return noClass()
	}
	offered := b.offers()
	i := slices.IndexFunc(offered.sets, func(s cdiv1.ClaimPropertySet) bool {
		return (spec.VolumeMode == nil || *spec.VolumeMode == modeOf(s)) && containsAll(s.AccessModes, spec.AccessModes)
	})
	switch {
	case i >= 0:
		b.takeModes(offered, i)
	case len(spec.AccessModes) == 0 && spec.VolumeMode == nil:
		return noModes(b.className(), b.adviceOn(offered))
	case len(spec.AccessModes) == 0:
		return noAccessMode(b.className(), b.adviceOn(offered))
	default: // the access modes are the user's and nothing is known of them: what Kubernetes does with such a claim
		b.setVolumeMode(corev1.PersistentVolumeFilesystem, "Kubernetes' default; nothing is known of a volume mode for "+
			joinModes(spec.AccessModes)+" here")
	}
	return nil
}

func (b *builder) takeModes(offered offer, i int) {
	set, spec := offered.sets[i], &b.out.Spec
	choice := fmt.Sprintf("choice %d of %d of %s", i+1, len(offered.sets), offered.from)
	if spec.VolumeMode == nil {
		reason := choice
		if len(spec.AccessModes) > 0 {
			reason += ", the first with " + joinModes(spec.AccessModes)
		}
		b.setVolumeMode(modeOf(set), reason)
	} else {
		choice += ", the first with " + string(*spec.VolumeMode)
	}
	if len(spec.AccessModes) == 0 {
		spec.AccessModes = slices.Clone(set.AccessModes)
		b.filled("accessModes", joinModes(set.AccessModes), choice)
	}
}

func (b *builder) setVolumeMode(mode corev1.PersistentVolumeMode, reason string) {
	b.out.Spec.VolumeMode = &mode
	b.filled("volumeMode", string(mode), reason)
}

// adviceOn returns why the offers do not help and what does.
func (b *builder) adviceOn(offered offer) string {
	const remedy = "write accessModes into the claim, or claimPropertySets into the spec of StorageProfile "
	name := b.className()
	switch {
	case len(offered.sets) > 0:
		return fmt.Sprintf("%s offers %s only; %s%s", offered.from, describe(offered.sets), remedy, name)
	case b.out.Class == nil:
		return fmt.Sprintf("there is no StorageClass %s; create it, or write accessModes and volumeMode into the claim", name)
	default:
		return fmt.Sprintf("nothing is known of provisioner %s; %s%s", b.out.Class.Provisioner, remedy, name)
	}
}

func describe(sets []cdiv1.ClaimPropertySet) string {
	words := make([]string, len(sets))
	for i, s := range sets {
		words[i] = joinModes(s.AccessModes) + " " + string(modeOf(s))
	}
	return strings.Join(words, ", ")
}

func containsAll(have, want []corev1.PersistentVolumeAccessMode) bool {
	return !slices.ContainsFunc(want, func(m corev1.PersistentVolumeAccessMode) bool { return !slices.Contains(have, m) })
}

func joinModes(modes []corev1.PersistentVolumeAccessMode) string {
	words := make([]string, len(modes))
	for i, m := range modes {
		words[i] = string(m)
	}
	return strings.Join(words, "+")
}
