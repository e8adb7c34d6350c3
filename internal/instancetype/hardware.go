package instancetype

import (
	"encoding/json"
	"reflect"
	"slices"

	"kubevirt.io/api/instancetype/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// preferHardware fills in the features, the clock and the features of processors that the machine does not name.
func preferHardware(domain *kubevirt.DomainSpec, p *Preference) {
	if f := p.Features; f != nil {
		preferFeatures(domain, f)
	}
	if c := p.Clock; c != nil {
		if domain.Clock == nil {
			domain.Clock = &kubevirt.Clock{}
		}
		if offset := ours[kubevirt.ClockOffset](c.PreferredClockOffset); offset != nil && domain.Clock.ClockOffset == (kubevirt.ClockOffset{}) {
			domain.Clock.ClockOffset = *offset
		}
		fill(&domain.Clock.Timer, ours[kubevirt.Timer](c.PreferredTimer))
	}
	if p.CPU == nil {
		return
	}
	for _, f := range p.CPU.PreferredCPUFeatures {
		if domain.CPU == nil {
			domain.CPU = &kubevirt.CPU{}
		}
		if !slices.ContainsFunc(domain.CPU.Features, func(have kubevirt.CPUFeature) bool { return have.Name == f.Name }) {
			domain.CPU.Features = append(domain.CPU.Features, kubevirt.CPUFeature(f))
		}
	}
}

func preferFeatures(domain *kubevirt.DomainSpec, f *v1beta1.FeaturePreferences) {
	if domain.Features == nil {
		domain.Features = &kubevirt.Features{}
	}
	to := domain.Features
	if acpi := ours[kubevirt.FeatureState](f.PreferredAcpi); acpi != nil && to.ACPI.Enabled == nil {
		to.ACPI = *acpi
	}
	fill(&to.APIC, ours[kubevirt.FeatureAPIC](f.PreferredApic))
	fill(&to.Hyperv, ours[kubevirt.FeatureHyperv](f.PreferredHyperv))
	fill(&to.KVM, ours[kubevirt.FeatureKVM](f.PreferredKvm))
	fill(&to.Pvspinlock, ours[kubevirt.FeatureState](f.PreferredPvspinlock))
	fill(&to.SMM, ours[kubevirt.FeatureState](f.PreferredSmm))
}

// ours returns a value of kubevirt.io's in our own type, which has the same fields; nil if it is.
func ours[T any](theirs any) *T {
	if reflect.ValueOf(theirs).IsNil() {
		return nil
	}
	text, err := json.Marshal(theirs)
	if err != nil {
		return nil // it came as JSON
	}
	out := new(T)
	if err := json.Unmarshal(text, out); err != nil {
		return nil
	}
	return out
}
