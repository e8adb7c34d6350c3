package library

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Labels and annotations as upstream's objects have them.
const (
	group   = "instancetype.kubevirt.io/"
	vendor  = "kubevirt.io"
	display = "openshift.io/display-name"
)

// schedule is when an image is looked for: twice a day, each a few minutes after the one before.
func schedule(n int) string { return strconv.Itoa(10+5*n) + " */12 * * *" }

// Crons keep the images.
func Crons() []cdiv1.DataImportCron {
	var all []cdiv1.DataImportCron
	for n, i := range Images {
		labels := map[string]string{group + "default-instancetype": ImageType, group + "default-preference": i.Preference}
		all = append(all, cdiv1.DataImportCron{
			TypeMeta:   metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "DataImportCron"},
			ObjectMeta: metav1.ObjectMeta{Name: i.Name + "-image-cron", Namespace: Namespace, Labels: labels},
			Spec: cdiv1.DataImportCronSpec{
				Schedule: schedule(n), ManagedDataSource: i.Name, ImportsToKeep: ptr.To[int32](2), GarbageCollect: ptr.To(cdiv1.DataImportCronGarbageCollectOutdated),
				Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
					Source: &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://" + i.From)}},
					Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(i.Size)}}},
				}},
			},
		})
	}
	return all
}

// Instancetypes are the objects of Types.
func Instancetypes() []v1beta1.VirtualMachineClusterInstancetype {
	var all []v1beta1.VirtualMachineClusterInstancetype
	for _, series := range Types {
		for _, size := range series.Sizes {
			t := v1beta1.VirtualMachineClusterInstancetype{
				TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineClusterInstancetype"},
				ObjectMeta: metav1.ObjectMeta{Name: series.Name + "." + size.Name,
					Labels: map[string]string{group + "vendor": vendor, group + "class": series.Class, group + "version": "1", group + "size": size.Name,
						group + "cpu": strconv.FormatUint(uint64(size.CPU), 10), group + "memory": size.Memory},
					Annotations: map[string]string{group + "displayName": series.Display, group + "description": series.Description}},
				Spec: v1beta1.VirtualMachineInstancetypeSpec{
					CPU:    v1beta1.CPUInstancetype{Guest: size.CPU},
					Memory: v1beta1.MemoryInstancetype{Guest: resource.MustParse(size.Memory), OvercommitPercent: series.Overcommit},
				},
			}
			if series.HugePages != "" {
				t.Labels[group+"hugepages"] = "true"
				t.Spec.Memory.Hugepages = &kubevirtv1.Hugepages{PageSize: series.HugePages}
			}
			all = append(all, t)
		}
	}
	return all
}

// ClusterPreferences are the objects of Preferences.
func ClusterPreferences() []v1beta1.VirtualMachineClusterPreference {
	var all []v1beta1.VirtualMachineClusterPreference
	for _, p := range Preferences {
		family, _, _ := strings.Cut(p.Name, ".")
		o := v1beta1.VirtualMachineClusterPreference{
			TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineClusterPreference"},
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: map[string]string{group + "vendor": vendor, group + "os-type": p.OS, group + "arch": "amd64"},
				Annotations: map[string]string{display: p.Display, "iconClass": "icon-" + family, "tags": "hidden,kubevirt," + p.OS + "," + family}},
			Spec: p.spec(),
		}
		all = append(all, o)
	}
	return all
}

func (p Preference) spec() v1beta1.VirtualMachinePreferenceSpec {
	bus, model := kubevirtv1.DiskBusVirtio, kubevirtv1.VirtIO
	if p.Plain {
		bus, model = kubevirtv1.DiskBusSATA, "e1000e"
	}
	s := v1beta1.VirtualMachinePreferenceSpec{Devices: &v1beta1.DevicePreferences{PreferredDiskBus: bus, PreferredInterfaceModel: model}}
	if p.OS == "linux" && !p.Plain {
		s.Devices.PreferredRng = &kubevirtv1.Rng{}
	}
	if p.Tablet {
		s.Devices.PreferredAutoattachInputDevice = ptr.To(true)
		s.Devices.PreferredInputType = kubevirtv1.InputTypeTablet
		s.Devices.PreferredInputBus = kubevirtv1.InputBusVirtio
		if p.Plain {
			s.Devices.PreferredInputBus = kubevirtv1.InputBusUSB
		}
	}
	if p.TPM {
		s.Devices.PreferredTPM = &kubevirtv1.TPMDevice{}
	}
	if p.EFI {
		s.Firmware = &v1beta1.FirmwarePreferences{PreferredEfi: &kubevirtv1.EFI{SecureBoot: ptr.To(false)}}
	}
	if p.CPU > 0 {
		s.Requirements = &v1beta1.PreferenceRequirements{CPU: &v1beta1.CPUPreferenceRequirement{Guest: p.CPU},
			Memory: &v1beta1.MemoryPreferenceRequirement{Guest: resource.MustParse(p.Memory)}}
	}
	if p.OS == "windows" {
		windowsSpec(&s)
	}
	return s
}

// windowsSpec adds what every Windows likes: clocks that it does not lose time with, and what Hyper-V would tell it.
func windowsSpec(s *v1beta1.VirtualMachinePreferenceSpec) {
	on := &kubevirtv1.FeatureState{}
	s.CPU = &v1beta1.CPUPreferences{PreferredCPUTopology: ptr.To(v1beta1.Sockets)}
	s.Clock = &v1beta1.ClockPreferences{
		PreferredClockOffset: &kubevirtv1.ClockOffset{UTC: &kubevirtv1.ClockOffsetUTC{}},
		PreferredTimer: &kubevirtv1.Timer{HPET: &kubevirtv1.HPETTimer{Enabled: ptr.To(false)}, Hyperv: &kubevirtv1.HypervTimer{},
			PIT: &kubevirtv1.PITTimer{TickPolicy: kubevirtv1.PITTickPolicyDelay}, RTC: &kubevirtv1.RTCTimer{TickPolicy: kubevirtv1.RTCTickPolicyCatchup}},
	}
	s.Features = &v1beta1.FeaturePreferences{
		PreferredAcpi: on, PreferredApic: &kubevirtv1.FeatureAPIC{},
		PreferredHyperv: &kubevirtv1.FeatureHyperv{Frequencies: on, IPI: on, Reenlightenment: on, Relaxed: on, Reset: on, Runtime: on, SyNIC: on,
			SyNICTimer: &kubevirtv1.SyNICTimer{Direct: on}, TLBFlush: &kubevirtv1.TLBFlush{}, VAPIC: on, VPIndex: on,
			Spinlocks: &kubevirtv1.FeatureSpinlocks{Retries: ptr.To[uint32](8191)}},
	}
}
