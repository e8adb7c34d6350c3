package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// checkClaimTemplates judges the claims a machine is to have. A claim that is only partly described is fine.
func checkClaimTemplates(vm *kubevirt.VirtualMachine, c *causes) {
	seen := map[string]bool{}
	for i := range vm.Spec.VolumeClaimTemplates {
		t, at := &vm.Spec.VolumeClaimTemplates[i], claimsPath.Index(i)
		name, named := t.ObjectMeta.Name, at.Child("metadata", "name")
		full := kubevirt.ClaimName(vm.Name, name)
		switch {
		case name == "":
			c.missing(named, "%s is missing: the claim is called <machine>-<template>", named)
			continue
		case seen[name]:
			c.invalid(named, "two volumeClaimTemplates are called %s: a name must be unique in the machine", name)
		case len(validation.IsDNS1123Subdomain(name)) > 0:
			c.invalid(named, "%s: %s", named, validation.IsDNS1123Subdomain(name)[0])
		case len(full) > validation.DNS1123SubdomainMaxLength:
			c.invalid(named, "PersistentVolumeClaim %s would have a name of %d characters: it cannot be longer than %d characters",
				full, len(full), validation.DNS1123SubdomainMaxLength)
		}
		seen[name] = true
		if !slices.ContainsFunc(vm.Spec.Template.Spec.AllVolumes(), func(v kubevirt.Volume) bool { return inTemplate(v, name) }) {
			c.invalid(at, "VolumeClaimTemplate entry %s must be referenced in the VMI template's 'volumes' list", name)
		}
		checkClaimSpec(&t.Spec, at.Child("spec"), c)
	}
	for i, t := range vm.Spec.DataVolumeTemplates {
		for j := range vm.Spec.VolumeClaimTemplates {
			if claim := kubevirt.ClaimName(vm.Name, vm.Spec.VolumeClaimTemplates[j].ObjectMeta.Name); claim == t.ObjectMeta.Name {
				at := specPath.Child("dataVolumeTemplates").Index(i)
				c.invalid(at, "DataVolumeTemplate entry %s has the name of the claim of %s", claim, claimsPath.Index(j))
			}
		}
	}
}

// inTemplate reports whether the volume is in the claim of the template.
func inTemplate(v kubevirt.Volume, template string) bool {
	return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Claim() == template ||
		v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil && v.Ephemeral.PersistentVolumeClaim.ClaimName == template
}

func checkClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path, c *causes) {
	checkTarget(target{name: "PVC", modes: s.AccessModes, volume: s.VolumeMode, resources: s.Resources}, false, at, c)
	if m := s.VolumeMode; m != nil && *m != corev1.PersistentVolumeBlock && *m != corev1.PersistentVolumeFilesystem &&
		*m != cdiv1.PersistentVolumeFromStorageProfile {
		c.invalid(at.Child("volumeMode"), `Unsupported value: "%s": supported values: "Block", "Filesystem", "%s"`, *m, cdiv1.PersistentVolumeFromStorageProfile)
	}
	if s.DataSource != nil && s.DataSourceRef != nil {
		same := corev1.TypedLocalObjectReference{APIGroup: s.DataSourceRef.APIGroup, Kind: s.DataSourceRef.Kind, Name: s.DataSourceRef.Name}
		if !equality.Semantic.DeepEqual(*s.DataSource, same) {
			c.invalid(at.Child("dataSourceRef"), "DataSourceRef and DataSource must match")
		}
	}
	if r := s.DataSourceRef; r != nil && (r.Kind == "" || r.Name == "") {
		c.missing(at.Child("dataSourceRef"), "%s needs a kind and a name", at.Child("dataSourceRef"))
	}
}
