package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestCanonical: what the proposal for network disks writes at a disk becomes the volume that instances have.
func TestCanonical(t *testing.T) {
	const written = `
domain:
  devices:
    disks:
    - source:
        iscsi: {host: {name: iscsi-demo-target, port: "3260"}, portal: "iqn.2017-01.io.kubevirt:sn.42", lun: 2}
    - name: claim
      serial: C
      source: {pvc: {claimname: some-pvc-name}}
      access-mode: read-only
      copy: {mode: copy-on-write, usage-type: fast, capacity: 1Gi, size: 2Gi}
    - name: web
      source: {http: {url: "http://a/b"}}
      copy: {mode: copy-on-write}
    - name: plain
volumes:
- name: plain
  copy: {mode: none}
  nbd: {host: {name: server, port: "10810"}}
`
	const want = `
domain:
  devices:
    disks:
    - name: disk
    - name: claim
      serial: C
    - name: web
    - name: plain
volumes:
- name: plain
  nbd: {host: {name: server, port: 10810}}
- name: disk
  iscsi: {host: {name: iscsi-demo-target, port: 3260}, portal: "iqn.2017-01.io.kubevirt:sn.42", lun: 2}
- name: claim
  accessMode: read-shared
  copy: {mode: copy-on-write, usageType: fast, capacity: 1Gi, size: 2Gi}
  persistentVolumeClaim: {claimName: some-pvc-name}
- name: web
  copy: {mode: copy-on-write}
  http: {url: "http://a/b"}
`
	var got, expect VirtualMachineInstanceSpec
	for text, into := range map[string]*VirtualMachineInstanceSpec{written: &got, want: &expect} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	got.Domain.Devices.Disks[0].Name = "disk" // the API server's default
	before := got.DeepCopy()
	if n := len(got.AllVolumes()); n != 4 {
		t.Errorf("%d volumes", n)
	}
	if diff := cmp.Diff(before, &got); diff != "" {
		t.Errorf("looking at the volumes has changed them:\n%s", diff)
	}
	for range 2 { // twice is as good as once
		got.Canonical()
		if diff := cmp.Diff(expect, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}
