package instancetype

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	if text == "" {
		return nil
	}
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return out
}

const small = "cpu: {guest: 2}\nmemory: {guest: 1Gi}\n"

func TestApply(t *testing.T) {
	for _, c := range []struct {
		name                   string
		spec, kind, preference string
		want                   string // the instance's spec
	}{
		{
			name: "an instance type decides processors and memory",
			spec: "domain: {devices: {}}", kind: small,
			want: "domain: {devices: {}, cpu: {sockets: 2, cores: 1, threads: 1}, memory: {guest: 1Gi}}",
		},
		{
			name: "the machine keeps its own processor model",
			spec: "domain: {devices: {}, cpu: {model: Skylake}}", kind: small,
			want: "domain: {devices: {}, cpu: {sockets: 2, cores: 1, threads: 1, model: Skylake}, memory: {guest: 1Gi}}",
		},
		{
			name: "a share of the memory is not asked of the node",
			spec: "domain: {devices: {}}", kind: "cpu: {guest: 1}\nmemory: {guest: 1000Mi, overcommitPercent: 50}\n",
			want: "domain: {devices: {}, cpu: {sockets: 1, cores: 1, threads: 1}, memory: {guest: 1000Mi}, resources: {requests: {memory: 500Mi}}}",
		},
		{
			name: "an instance type places",
			spec: "domain: {devices: {}}", kind: small + "nodeSelector: {fast: \"yes\"}\nschedulerName: mine\n",
			want: "{nodeSelector: {fast: \"yes\"}, schedulerName: mine, domain: {devices: {}, cpu: {sockets: 2, cores: 1, threads: 1}, memory: {guest: 1Gi}}}",
		},
		{
			name: "a preference fills in and changes nothing that is said",
			spec: `{domain: {devices: {disks: [{name: a}, {name: b, disk: {bus: sata}, cache: none}, {name: c, cdrom: {}}]}},
				volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: d, emptyDisk: {capacity: 1Gi}}]}`,
			preference: "devices: {preferredDiskBus: scsi, preferredCdromBus: sata, preferredDiskCache: writeback, preferredDiskIO: threads}",
			want: `{domain: {devices: {disks: [{name: a, disk: {bus: scsi}, cache: writeback, io: threads},
				{name: b, disk: {bus: sata}, cache: none, io: threads}, {name: c, cdrom: {bus: sata}},
				{name: d, disk: {bus: scsi}, cache: writeback, io: threads}]}},
				volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: d, emptyDisk: {capacity: 1Gi}}]}`,
		},
		{
			name: "a preference for firmware, board and time",
			spec: "domain: {devices: {}}",
			preference: `{firmware: {preferredEfi: {secureBoot: false}}, machine: {preferredMachineType: q35},
				preferredTerminationGracePeriodSeconds: 7, devices: {preferredAutoattachGraphicsDevice: false, preferredRng: {}}}`,
			want: `{terminationGracePeriodSeconds: 7, domain: {devices: {autoattachGraphicsDevice: false, rng: {}},
				firmware: {bootloader: {efi: {secureBoot: false}}}, machine: {type: q35}}}`,
		},
		{
			name: "firmware that is said stays", spec: "domain: {devices: {}, firmware: {bootloader: {bios: {}}}}",
			preference: "firmware: {preferredUseEfi: true}",
			want:       "domain: {devices: {}, firmware: {bootloader: {bios: {}}}}",
		},
		{
			name: "a requirement that is met", spec: "domain: {devices: {}}", kind: small,
			preference: "{requirements: {cpu: {guest: 2}, memory: {guest: 1Gi}}, cpu: {preferredCPUTopology: cores}}",
			want:       "domain: {devices: {}, cpu: {sockets: 1, cores: 2, threads: 1}, memory: {guest: 1Gi}}",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := &kubevirt.VirtualMachineInstance{Spec: *parse[kubevirt.VirtualMachineInstanceSpec](t, c.spec)}
			if err := Apply(i, parse[Type](t, c.kind), parse[Preference](t, c.preference)); err != nil {
				t.Fatal(err)
			}
			want := *parse[kubevirt.VirtualMachineInstanceSpec](t, c.want)
			equal := cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
			if diff := cmp.Diff(want, i.Spec, equal); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestApplyCannot(t *testing.T) {
	for _, c := range []struct{ name, spec, kind, preference, want string }{
		{"two answers about processors", "domain: {devices: {}, cpu: {sockets: 4}}", small, "",
			"VM field(s) spec.template.spec.domain.cpu.sockets conflicts with selected instance type"},
		{"two answers about memory", "domain: {devices: {}, memory: {guest: 2Gi}}", small, "",
			"VM field(s) spec.template.spec.domain.memory.guest conflicts with selected instance type"},
		{"two answers about requests", "domain: {devices: {}, resources: {requests: {memory: 2Gi}}}", small, "",
			"VM field(s) spec.template.spec.domain.resources.requests.memory conflicts with selected instance type"},
		{"two answers about the model", "domain: {devices: {}, cpu: {model: a}}", "cpu: {guest: 1, model: b}\nmemory: {guest: 1Gi}", "",
			"VM field(s) spec.template.spec.domain.cpu.model conflicts with selected instance type"},
		{"two answers about nodes", "{domain: {devices: {}}, nodeSelector: {a: b}}", small + "nodeSelector: {a: c}", "",
			"VM field(s) spec.template.spec.nodeSelector conflicts with selected instance type"},
		{"what machines here cannot have", "domain: {devices: {}}",
			"cpu: {guest: 1, dedicatedCPUPlacement: true}\nmemory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}", "",
			"the instance type asks for cpu.dedicatedCPUPlacement, which machines here cannot have; choose another"},
		{"too few processors", "domain: {devices: {}}", small, "requirements: {cpu: {guest: 4}}",
			"insufficient CPU resources of 2 vCPU provided by instance type, preference requires 4 vCPU"},
		{"too little memory", "domain: {devices: {}, memory: {guest: 1Gi}}", "", "requirements: {memory: {guest: 2Gi}}",
			"insufficient Memory resources of 1Gi provided by VM, preference requires 2Gi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := &kubevirt.VirtualMachineInstance{Spec: *parse[kubevirt.VirtualMachineInstanceSpec](t, c.spec)}
			err := Apply(i, parse[Type](t, c.kind), parse[Preference](t, c.preference))
			var problem *Problem
			if !errors.As(err, &problem) || problem.Text != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestTopology(t *testing.T) {
	with := func(topology v1beta1.PreferredCPUTopology, across v1beta1.SpreadAcross, ratio uint32) *Preference {
		return &Preference{CPU: &v1beta1.CPUPreferences{PreferredCPUTopology: &topology,
			SpreadOptions: &v1beta1.SpreadOptions{Across: &across, Ratio: &ratio}}}
	}
	for _, c := range []struct {
		guest uint32
		p     *Preference
		want  [3]uint32 // sockets, cores, threads
	}{
		{4, nil, [3]uint32{4, 1, 1}},
		{4, with("cores", "", 0), [3]uint32{1, 4, 1}},
		{4, with("preferThreads", "", 0), [3]uint32{1, 1, 4}},
		{6, with("spread", "", 0), [3]uint32{3, 2, 1}},
		{8, with("spread", "SocketsCores", 4), [3]uint32{2, 4, 1}},
		{5, with("spread", "", 0), [3]uint32{5, 1, 1}},
		{8, with("spread", "SocketsCoresThreads", 2), [3]uint32{2, 2, 2}},
		{6, with("spread", "CoresThreads", 0), [3]uint32{1, 3, 2}},
		{7, with("spread", "CoresThreads", 0), [3]uint32{1, 7, 1}},
		{0, with("any", "", 0), [3]uint32{1, 1, 1}},
	} {
		got := topology(c.guest, c.p)
		if !cmp.Equal(got, kubevirt.CPU{Sockets: c.want[0], Cores: c.want[1], Threads: c.want[2]}) {
			t.Errorf("%d: got %+v, want %v", c.guest, got, c.want)
		}
		if n := processors(&got); n != max(c.guest, 1) {
			t.Errorf("%d processors became %d", c.guest, n)
		}
	}
}

func TestInfer(t *testing.T) {
	labels := map[string]string{
		"instancetype.kubevirt.io/default-instancetype": "u1.small",
		"instancetype.kubevirt.io/default-preference":   "fedora", "instancetype.kubevirt.io/default-preference-kind": "VirtualMachinePreference",
	}
	if r, ok := InferType(labels); !ok || r != (Ref{KindClusterType, "u1.small"}) {
		t.Errorf("%+v, %t", r, ok)
	}
	if r, ok := InferPreference(labels); !ok || r != (Ref{KindPreference, "fedora"}) {
		t.Errorf("%+v, %t", r, ok)
	}
	if _, ok := InferType(nil); ok {
		t.Error("nothing is inferred from nothing")
	}
}

func TestKindOf(t *testing.T) {
	kinds := []string{KindType, KindClusterType}
	for written, want := range map[string]string{
		"virtualmachineclusterinstancetype": KindClusterType, "VirtualMachineInstancetypes": KindType, KindType: KindType, "Flavour": "Flavour",
	} {
		if got := KindOf(written, kinds); got != want {
			t.Errorf("%s is %s, want %s", written, got, want)
		}
	}
}

// TestPreferHardware: features, clock and processors are as the preference has them, unless the machine says otherwise.
func TestPreferHardware(t *testing.T) {
	var p Preference
	if err := yaml.UnmarshalStrict([]byte(`
features: {preferredAcpi: {}, preferredApic: {endOfInterrupt: true}, preferredHyperv: {relaxed: {}, spinlocks: {spinlocks: 8191}}, preferredSmm: {}}
clock: {preferredClockOffset: {utc: {}}, preferredTimer: {hpet: {present: false}, hyperv: {}}}
cpu: {preferredCPUFeatures: [{name: vmx, policy: require}, {name: apic, policy: disable}]}
devices: {preferredAutoattachInputDevice: true, preferredBlockMultiQueue: false, preferredInputBus: virtio, preferredDiskBlockSize: {custom: {logical: 4096, physical: 4096}}}
`), &p); err != nil {
		t.Fatal(err)
	}
	var i, want kubevirt.VirtualMachineInstance
	for text, into := range map[string]*kubevirt.VirtualMachineInstance{
		"domain: {features: {smm: {enabled: false}}, cpu: {features: [{name: apic}]}, devices: {inputs: [{name: a, type: tablet}], disks: [{name: a}]}}": &i,
		`domain:
  features: {acpi: {}, apic: {endOfInterrupt: true}, hyperv: {relaxed: {}, spinlocks: {spinlocks: 8191}}, smm: {enabled: false}}
  clock: {utc: {}, timer: {hpet: {present: false}, hyperv: {}}}
  cpu: {features: [{name: apic}, {name: vmx, policy: require}]}
  devices: {autoattachInputDevice: true, blockMultiQueue: false, inputs: [{name: a, type: tablet, bus: virtio}], disks: [{name: a, disk: {}, blockSize: {custom: {logical: 4096, physical: 4096}}}]}
`: &want,
	} {
		if err := yaml.UnmarshalStrict([]byte(text), &into.Spec); err != nil {
			t.Fatal(err)
		}
	}
	if err := Apply(&i, nil, &p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Spec, i.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
