package machinefields

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestTables: each field has one row, in the order of the paths, and a row that is not Works says why.
func TestTables(t *testing.T) {
	for _, table := range [][]Field{Machine, Instance} {
		if !slices.IsSortedFunc(table, func(a, b Field) int { return strings.Compare(a.Path, b.Path) }) {
			t.Error("the rows are not in the order of their paths")
		}
		seen := map[string]bool{}
		for _, f := range table {
			if seen[f.Path] {
				t.Errorf("%s has two rows", f.Path)
			}
			seen[f.Path] = true
			if f.Effect != Works && f.Note == "" {
				t.Errorf("%s is %s and does not say why", f.Path, f.Effect)
			}
		}
	}
}

func TestFind(t *testing.T) {
	const written = `
domain:
  ioThreadsPolicy: auto
  launchSecurity: {sev: {}}
  cpu: {dedicatedCpuPlacement: false, maxSockets: 4}
  devices:
    autoattachMemBalloon: false
    tpm: {persistent: true}
    gpus: []
    hostDevices: [{name: a, deviceName: b}]
    disks: [{name: a, disk: {bus: virtio}}, {name: b, dedicatedIOThread: true}]
    panicDevices: [{model: isa}, {model: hyperv}]
    interfaces: [{name: default, bridge: {}}]
networks: [{name: default, pod: {}}, {name: blue, multus: {networkName: blue}}]
`
	var spec map[string]any
	if err := yaml.Unmarshal([]byte(written), &spec); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range Find(spec, "spec") {
		got = append(got, string(f.Effect)+": "+f.At)
	}
	want := []string{
		"no effect: spec.domain.cpu.maxSockets",
		"no effect: spec.domain.devices.disks[1].dedicatedIOThread",
		"refused: spec.domain.devices.hostDevices",
		"no effect: spec.domain.devices.interfaces[0].bridge",
		"no effect: spec.domain.devices.panicDevices[1]",
		"no effect: spec.domain.devices.tpm",
		"refused: spec.domain.devices.tpm.persistent",
		"no effect: spec.domain.ioThreadsPolicy",
		"refused: spec.domain.launchSecurity",
		"refused: spec.networks[1].multus",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	off := map[string]any{"domain": map[string]any{"devices": map[string]any{"tpm": map[string]any{"enabled": false}}}}
	if found := Find(off, "spec"); len(found) > 0 {
		t.Errorf("a device that is switched off: %v", found)
	}
}
