package v1

// What the guest finds on its board: features, clocks and timers. Which of them have an effect is in docs/reference/machines.md.

// FeatureState switches a feature on or off; on if unset, as upstream has it.
type FeatureState struct {
	// Enabled switches it on or off. True unless set.
	Enabled *bool `json:"enabled,omitempty"`
}

// On reports whether the feature is named and not switched off.
func (f *FeatureState) On() bool { return f != nil && (f.Enabled == nil || *f.Enabled) }

// Features of the board and of the hypervisor, as the guest sees them.
type Features struct {
	// ACPI tables. On unless switched off.
	ACPI FeatureState `json:"acpi,omitempty"`
	// APIC is the interrupt controller. On unless switched off.
	APIC *FeatureAPIC `json:"apic,omitempty"`
	// HypervPassthrough gives the guest every Hyper-V enlightenment that the node has.
	HypervPassthrough *FeatureState `json:"hypervPassthrough,omitempty"`
	// Hyperv are the Hyper-V enlightenments, which make Windows guests faster.
	Hyperv *FeatureHyperv `json:"hyperv,omitempty"`
	// SMM is the system management mode.
	SMM *FeatureState `json:"smm,omitempty"`
	// KVM sets which KVM features the guest sees.
	KVM *FeatureKVM `json:"kvm,omitempty"`
	// Pvspinlock tells the guest that it may wait for locks with the hypervisor's help.
	Pvspinlock *FeatureState `json:"pvspinlock,omitempty"`
}

// FeatureAPIC is the interrupt controller.
type FeatureAPIC struct {
	FeatureState `json:",inline"`
	// EndOfInterrupt lets the guest end interrupts without leaving to the hypervisor.
	EndOfInterrupt bool `json:"endOfInterrupt,omitempty"`
}

// FeatureKVM sets which KVM features the guest sees.
type FeatureKVM struct {
	// Hidden keeps the guest from seeing that it runs on KVM.
	Hidden bool `json:"hidden,omitempty"`
}

// FeatureHyperv are the Hyper-V enlightenments. A node without KVM has none of them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.spinlocks) || !has(self.spinlocks.spinlocks) || self.spinlocks.spinlocks >= 4096",message="spinlocks must be at least 4096"
type FeatureHyperv struct {
	// Relaxed has the guest not take a late timer for a crash.
	Relaxed *FeatureState `json:"relaxed,omitempty"`
	// VAPIC speeds up interrupts.
	VAPIC *FeatureState `json:"vapic,omitempty"`
	// Spinlocks tell the hypervisor of locks that are waited for.
	Spinlocks *FeatureSpinlocks `json:"spinlocks,omitempty"`
	// VPIndex numbers the processors.
	VPIndex *FeatureState `json:"vpindex,omitempty"`
	// Runtime tells the guest how long its processors have run.
	Runtime *FeatureState `json:"runtime,omitempty"`
	// SyNIC is the synthetic interrupt controller.
	SyNIC *FeatureState `json:"synic,omitempty"`
	// SyNICTimer are the timers of the synthetic interrupt controller.
	SyNICTimer *SyNICTimer `json:"synictimer,omitempty"`
	// Reset lets the guest reset itself through the hypervisor.
	Reset *FeatureState `json:"reset,omitempty"`
	// VendorID is the vendor that the guest reads.
	VendorID *FeatureVendorID `json:"vendorid,omitempty"`
	// Frequencies tell the guest the frequencies of its clocks.
	Frequencies *FeatureState `json:"frequencies,omitempty"`
	// Reenlightenment tells the guest that its clock's frequency has changed.
	Reenlightenment *FeatureState `json:"reenlightenment,omitempty"`
	// TLBFlush has the hypervisor flush the address caches of other processors.
	TLBFlush *TLBFlush `json:"tlbflush,omitempty"`
	// IPI has the hypervisor send interrupts between processors.
	IPI *FeatureState `json:"ipi,omitempty"`
	// EVMCS speeds up guests within the guest.
	EVMCS *FeatureState `json:"evmcs,omitempty"`
}

// FeatureSpinlocks tell the hypervisor of locks that are waited for.
type FeatureSpinlocks struct {
	FeatureState `json:",inline"`
	// Retries is the number of attempts before the hypervisor is notified; 4096 if unset.
	Retries *uint32 `json:"spinlocks,omitempty"`
}

// FeatureVendorID is the vendor that the guest reads.
type FeatureVendorID struct {
	FeatureState `json:",inline"`
	// VendorID is up to 12 characters.
	//
	// +kubebuilder:validation:MaxLength=12
	VendorID string `json:"vendorid,omitempty"`
}

// SyNICTimer are the timers of the synthetic interrupt controller.
type SyNICTimer struct {
	FeatureState `json:",inline"`
	// Direct has a timer interrupt the guest without a message.
	Direct *FeatureState `json:"direct,omitempty"`
}

// TLBFlush has the hypervisor flush the address caches of other processors.
type TLBFlush struct {
	FeatureState `json:",inline"`
	// Direct enables direct mode, for nested guests.
	Direct *FeatureState `json:"direct,omitempty"`
	// Extended has ranges of addresses flushed.
	Extended *FeatureState `json:"extended,omitempty"`
}

// Clock is the guest's clock when it starts, and its timers.
type Clock struct {
	ClockOffset `json:",inline"`
	Timer       *Timer `json:"timer,omitempty"`
}

// ClockOffset is how the guest's clock differs from UTC; it does not if unset.
type ClockOffset struct {
	UTC *ClockOffsetUTC `json:"utc,omitempty"`
	// Timezone that the guest's clock shows, such as Europe/Vienna.
	Timezone *ClockOffsetTimezone `json:"timezone,omitempty"`
}

// ClockOffsetTimezone is the name of a time zone.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
type ClockOffsetTimezone string

// ClockOffsetUTC is a clock in UTC.
type ClockOffsetUTC struct {
	// OffsetSeconds is how many seconds it is ahead of UTC when the guest starts.
	OffsetSeconds *int `json:"offsetSeconds,omitempty"`
}

// Timer are the timers of the board.
type Timer struct {
	// HPET is the high precision event timer; absent unless named.
	HPET *HPETTimer `json:"hpet,omitempty"`
	// KVM is KVM's clock; present unless switched off.
	KVM *PresentTimer `json:"kvm,omitempty"`
	// PIT is the programmable interval timer.
	PIT *PITTimer `json:"pit,omitempty"`
	// RTC is the real time clock.
	RTC *RTCTimer `json:"rtc,omitempty"`
	// Hyperv is Hyper-V's clock.
	Hyperv *PresentTimer `json:"hyperv,omitempty"`
}

// PresentTimer is a timer that is there or not.
type PresentTimer struct {
	// Enabled says whether it is there. True unless set.
	Enabled *bool `json:"present,omitempty"`
}

// HPETTimer is the high precision event timer.
type HPETTimer struct {
	// TickPolicy says what happens to ticks that the guest missed.
	//
	// +kubebuilder:validation:Enum=delay;catchup;merge;discard;""
	TickPolicy string `json:"tickPolicy,omitempty"`
	// Enabled says whether it is there. True unless set.
	Enabled *bool `json:"present,omitempty"`
}

// PITTimer is the programmable interval timer.
type PITTimer struct {
	// TickPolicy says what happens to ticks that the guest missed.
	//
	// +kubebuilder:validation:Enum=delay;catchup;discard;""
	TickPolicy string `json:"tickPolicy,omitempty"`
	// Enabled says whether it is there. True unless set.
	Enabled *bool `json:"present,omitempty"`
}

// RTCTimer is the real time clock.
type RTCTimer struct {
	// TickPolicy says what happens to ticks that the guest missed.
	//
	// +kubebuilder:validation:Enum=delay;catchup;""
	TickPolicy string `json:"tickPolicy,omitempty"`
	// Enabled says whether it is there. True unless set.
	Enabled *bool `json:"present,omitempty"`
	// Track is guest for a clock that stands still with the guest, wall for one that does not.
	//
	// +kubebuilder:validation:Enum=guest;wall;""
	Track string `json:"track,omitempty"`
}

// RebootPolicy says what happens when the guest reboots.
type RebootPolicy string

// The policies.
const (
	RebootInPlace    RebootPolicy = "Reboot"
	RebootTerminates RebootPolicy = "Terminate"
)

// Chassis describes the guest's case, as the guest reads it from SMBIOS.
type Chassis struct {
	// Manufacturer of the case.
	Manufacturer string `json:"manufacturer,omitempty"`
	// Version of the case.
	Version string `json:"version,omitempty"`
	// Serial number of the case.
	Serial string `json:"serial,omitempty"`
	// Asset tag of the case.
	Asset string `json:"asset,omitempty"`
	// Sku is the order number of the case.
	Sku string `json:"sku,omitempty"`
}

// CPUFeature is a feature of the processor, by libvirt's name.
type CPUFeature struct {
	// Name of the feature, such as vmx.
	//
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Name string `json:"name"`
	// Policy says whether the guest has it: force, require, optional, disable or forbid; require if unset.
	//
	// +kubebuilder:validation:Enum=force;require;optional;disable;forbid;""
	Policy string `json:"policy,omitempty"`
}

// IOThreadsPolicy has no effect.
type IOThreadsPolicy string

// DiskIOThreads has no effect.
type DiskIOThreads struct {
	// SupplementalPoolThreadCount has no effect.
	SupplementalPoolThreadCount *uint32 `json:"supplementalPoolThreadCount,omitempty"`
}

// Hugepages has no effect.
type Hugepages struct {
	// PageSize has no effect.
	PageSize string `json:"pageSize,omitempty"`
}

// ReservedOverhead is memory that the guest's pod requests in addition to the guest's.
type ReservedOverhead struct {
	// AddedOverhead is memory that the pod asks for besides what QEMU needs.
	AddedOverhead *Quantity `json:"addedOverhead,omitempty"`
	// MemLock has no effect: memory is not locked.
	MemLock *MemLockRequirement `json:"memLock,omitempty"`
}

// MemLockRequirement is Required or NotRequired.
type MemLockRequirement string

// ACPI names Secrets with tables of the guest's licence.
type ACPI struct {
	// SlicNameRef is a Secret with the table SLIC.
	SlicNameRef string `json:"slicNameRef,omitempty"`
	// MsdmNameRef is a Secret with the table MSDM.
	MsdmNameRef string `json:"msdmNameRef,omitempty"`
}
