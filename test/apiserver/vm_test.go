//go:build apiserver

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// vmNamed returns a machine with this spec, its template's spec and the name.
func vmNamed(name, spec, template string) string {
	return fmt.Sprintf("{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: %s, namespace: team}, spec: {%s, "+
		"template: {spec: {%s}}}}", name, spec, template)
}

func vm(spec, template string) string { return vmNamed("m", spec, template) }

const (
	bare    = "domain: {devices: {}}"
	oneDisk = bare + ", volumes: [{name: root, persistentVolumeClaim: {claimName: disk}}]"
	sized   = "resources: {requests: {storage: 1Gi}}"
)

func claims(templates string) string {
	return "running: false, volumeClaimTemplates: [" + templates + "]"
}

// machineRefusals are the sentences a machine can be refused with, one row each.
var machineRefusals = []struct{ name, object, want string }{
	{"template without a name", vm(claims("{metadata: {}, spec: {"+sized+"}}"), oneDisk), "spec.volumeClaimTemplates[0].metadata.name is missing"},
	{"two of a name", vm(claims("{metadata: {name: disk}, spec: {"+sized+"}}, {metadata: {name: disk}, spec: {"+sized+"}}"), oneDisk),
		"two volumeClaimTemplates are called disk: a name must be unique in the machine"},
	{"a name no claim can have", vm(claims("{metadata: {name: My_Disk}, spec: {"+sized+"}}"), bare+", volumes: [{name: root, persistentVolumeClaim: {name: My_Disk}}]"),
		"spec.volumeClaimTemplates[0].metadata.name: a lowercase RFC 1123 subdomain"},
	{"a claim's name that is too long", vm(claims("{metadata: {name: "+strings.Repeat("d", 252)+"}, spec: {"+sized+"}}"),
		bare+", volumes: [{name: root, persistentVolumeClaim: {name: "+strings.Repeat("d", 252)+"}}]"),
		"would have a name of 254 characters: it cannot be longer than 253 characters"},
	{"a machine's name that is too long", vmNamed(strings.Repeat("m", 64), "running: false", bare), "Name cannot be longer than 63 characters"},
	{"a template nobody uses", vm(claims("{metadata: {name: other}, spec: {"+sized+"}}"), oneDisk),
		"VolumeClaimTemplate entry other must be referenced in the VMI template's 'volumes' list"},
	{"a DataVolume template nobody uses", vm("running: false, dataVolumeTemplates: [{metadata: {name: other}, spec: {"+blank+", "+storage+"}}]", bare),
		"DataVolumeTemplate entry other must be referenced in the VMI template's 'volumes' list"},
	{"an early start with somebody else's DataVolume", vm("running: false", bare+", volumes: [{name: root, bootEarly: true, dataVolume: {name: a}}]"),
		"volume root: bootEarly is for a DataVolume that one of the machine's dataVolumeTemplates makes"},
	{"an early start with a claim", vm("running: false", bare+", volumes: [{name: root, bootEarly: true, persistentVolumeClaim: {claimName: a}}]"),
		"bootEarly is for the volume of a DataVolume without a copy"},
	{"both spellings of a claim", vm("running: false", bare+", volumes: [{name: root, persistentVolumeClaim: {claimName: a, name: b}}]"),
		"exactly one of claimName and name is required"},
	{"a volume from nowhere", vm("running: false", bare+", volumes: [{name: root}]"), "spec.template.spec.volumes[0] must have exactly one source type set"},
	{"a volume from two places", vm("running: false", bare+", volumes: [{name: root, emptyDisk: {capacity: 1Gi}, dataVolume: {name: a}}]"),
		"spec.template.spec.volumes[0] must have exactly one source type set"},
	{"a drive with nothing in it", vm("running: false", "domain: {devices: {disks: [{name: lost}]}}"),
		"spec.template.spec.domain.devices.disks[0].Name 'lost' not found."},
	{"zero size", vm(claims("{metadata: {name: disk}, spec: {resources: {requests: {storage: 0}}}}"), oneDisk), "PVC size can't be equal or less than zero"},
	{"tiny size", vm(claims("{metadata: {name: disk}, spec: {resources: {requests: {storage: 500Ki}}}}"), oneDisk), "PVC size should be at least 1MiB"},
	{"odd access mode", vm(claims("{metadata: {name: disk}, spec: {accessModes: [ReadWrite], "+sized+"}}"), oneDisk),
		`Unsupported value: "ReadWrite": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`},
	{"odd volume mode", vm(claims("{metadata: {name: disk}, spec: {volumeMode: Tape, "+sized+"}}"), oneDisk),
		`Unsupported value: "Tape": supported values: "Block", "Filesystem", "FromStorageProfile"`},
	{"sources that disagree", vm(claims("{metadata: {name: disk}, spec: {dataSource: {apiGroup: z, kind: X, name: a}, "+
		"dataSourceRef: {apiGroup: z, kind: X, name: b}, "+sized+"}}"), oneDisk), "DataSourceRef and DataSource must match"},
	{"an unknown field of a claim", vm(claims("{metadata: {name: disk}, spec: {storageClas: fast, "+sized+"}}"), oneDisk), `unknown field "spec.volumeClaimTemplates[0].spec.storageClas"`},
	{"processors twice", vm("running: false, instancetype: {name: small}", "domain: {cpu: {sockets: 2}, devices: {}}"),
		"VM field(s) spec.template.spec.domain.cpu.sockets conflicts with selected instance type"},
	{"memory twice", vm("running: false, instancetype: {name: small}", "domain: {memory: {guest: 1Gi}, devices: {}}"),
		"VM field(s) spec.template.spec.domain.memory.guest conflicts with selected instance type"},
	{"requests and an instance type", vm("running: false, instancetype: {name: small}", "domain: {resources: {requests: {memory: 1Gi}}, devices: {}}"),
		"VM field(s) spec.template.spec.domain.resources.requests.memory conflicts with selected instance type"},
	{"a kind that is none", vm("running: false, instancetype: {name: small, kind: Flavour}", bare),
		"spec.instancetype.kind is Flavour; it must be VirtualMachineInstancetype or VirtualMachineClusterInstancetype"},
	{"neither a name nor a volume", vm("running: false, preference: {}", bare), "name or inferFromVolume is required"},
	{"a volume to infer from that is not there", vm("running: false, preference: {inferFromVolume: lost}", oneDisk), "unable to find volume lost to infer defaults"},
	{"two answers about the instance type", vm("running: false, instancetype: {name: small, inferFromVolume: root}", oneDisk),
		"spec.instancetype.name and spec.instancetype.inferFromVolume are mutually exclusive"},
	{"a snapshot of something else", "{apiVersion: snapshot.kubevirt.io/v1beta1, kind: VirtualMachineSnapshot, metadata: {name: s, namespace: team}, " +
		"spec: {source: {kind: Pod, name: m}}}", "source must be a VirtualMachine of group kubevirt.io"},
	{"a restore of something else", "{apiVersion: snapshot.kubevirt.io/v1beta1, kind: VirtualMachineRestore, metadata: {name: s, namespace: team}, " +
		"spec: {target: {apiGroup: apps, kind: VirtualMachine, name: m}, virtualMachineSnapshotName: s}}", "target must be a VirtualMachine of group kubevirt.io"},
}

func TestMachineRefusals(t *testing.T) {
	for _, r := range machineRefusals {
		t.Run(r.name, func(t *testing.T) {
			err := admin.Create(t.Context(), object(r.object), client.DryRunAll, client.FieldValidation("Strict"))
			if err == nil || !strings.Contains(err.Error(), r.want) {
				t.Errorf("got  %v\nwant %s", err, r.want)
			}
		})
	}
}

// TestMachineAccepted: what must not be refused, among it both of the proposal's machines as it writes them.
func TestMachineAccepted(t *testing.T) {
	for name, text := range map[string]string{
		"a partial claim":       vm(claims("{metadata: {name: disk}, spec: {"+sized+"}}"), oneDisk),
		"no size for a clone":   vm(claims("{metadata: {name: disk}, spec: {dataSourceRef: {apiGroup: cdi.kubevirt.io, kind: VolumeCloneSource, name: fedora}}}"), oneDisk),
		"another's populator":   vm(claims("{metadata: {name: disk}, spec: {dataSourceRef: {apiGroup: example.com, kind: Image, name: a}, "+sized+"}}"), oneDisk),
		"metadata of a claim":   vm(claims("{metadata: {name: disk, creationTimestamp: null, labels: {a: b}}, spec: {"+sized+"}}"), oneDisk),
		"the proposal's volume": vm(claims("{metadata: {name: disk}, spec: {"+sized+"}}"), bare+", volumes: [{name: root, persistentVolumeClaim: {name: disk}}]"),
		"an instance type":      vm("running: false, instancetype: {name: small}, preference: {name: linux, kind: VirtualMachinePreference}", bare),
		"inference":             vm("running: false, instancetype: {inferFromVolume: root, inferFromVolumeFailurePolicy: Ignore}", oneDisk),
		"a generated name": "{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {generateName: testvm-, namespace: team}, spec: {running: true, " +
			"volumeClaimTemplates: [{metadata: {name: pvc1}, spec: {" + sized + "}}], template: {spec: {domain: {devices: {}}, volumes: " +
			"[{persistentVolumeClaim: {name: pvc1}, name: volume1}]}}}}",
	} {
		t.Run(name, func(t *testing.T) {
			if err := admin.Create(t.Context(), object(text), client.DryRunAll, client.FieldValidation("Strict")); err != nil {
				t.Error(err)
			}
		})
	}
}
