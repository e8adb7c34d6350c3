//go:build apiserver

package apiserver

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func contained(fields string) string {
	return volumes("{name: a, container: {image: maker" + fields + "}}")
}

// containerRefusals are the sentences a machine can be refused with because of a container.
var containerRefusals = []struct{ name, object, want string }{
	{"no image", volumes("{name: a, container: {}}"), "volumes[0].container.image: Required value"},
	{"a privileged container", contained(", securityContext: {privileged: true}"), "the pod security standard restricted does not allow it: "},
	{"root", contained(", securityContext: {runAsUser: 0}"), "runAsUser=0"},
	{"a capability", contained(", securityContext: {capabilities: {add: [SYS_ADMIN], drop: [ALL]}}"), "SYS_ADMIN"},
	{"a port of the node", contained(", ports: [{containerPort: 443, hostPort: 443}]"), "hostPort"},
	{"an unconfined container", contained(", securityContext: {seccompProfile: {type: Unconfined}}"), "seccomp"},
	{"a directory of the node", contained(", volumes: [{name: d, hostPath: {path: /}}]"), `unknown field "spec.template.spec.volumes[0].container.volumes[0].hostPath"`},
	{"a volume from nowhere", contained(", volumes: [{name: d}]"), "a volume of the container has one source"},
	{"a mount of nothing", contained(", volumeMounts: [{name: d, mountPath: /d}]"), "it mounts d, which is none of its volumes"},
	{"a mount over the keys", contained(", volumes: [{name: d, emptyDir: {}}], volumeMounts: [{name: d, mountPath: /run/berth}]"),
		"its certificates are at /run/berth/volume, and it mounts d at /run/berth"},
	{"an attribute that is none", contained(", comand: [x]"), `unknown field "spec.template.spec.volumes[0].container.comand"`},
	{"two sources", volumes("{name: a, container: {image: maker}, emptyDisk: {capacity: 1Mi}}"), "must have exactly one source type set"},
	{"two sources of a disk", disks("{source: {container: {image: maker}, pvc: {claimname: c}}}"), "a disk has one source"},
	{"a claim of another namespace", disks("{source: {pvc: {claimname: other/claim}}}"), "disks[0].source.pvc.claimname"},
	{"an instance with one", "{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: i, namespace: team}, " +
		"spec: {domain: {devices: {}}, volumes: [{name: a, container: {image: maker}}]}}", "an instance has the disk that a container made"},
}

func TestContainerRefusals(t *testing.T) {
	for _, r := range containerRefusals {
		t.Run(r.name, func(t *testing.T) {
			err := users["gina"].Create(t.Context(), object(r.object), client.DryRunAll, client.FieldValidation("Strict"))
			if err == nil || !strings.Contains(err.Error(), r.want) {
				t.Errorf("got  %v\nwant %s", err, r.want)
			}
		})
	}
}

// TestContainerRights: who names a container must be allowed to run one, and who only changes the rest of the machine need not be.
func TestContainerRights(t *testing.T) {
	plain := strings.Replace(contained(", serviceAccountName: maker, size: 1Gi, env: [{name: A, value: b}]"), "name: m,", "name: contained,", 1)
	err := users["bob"].Create(t.Context(), object(plain))
	if want := "User bob may not create pods in namespace team, and so may not have the container of volume a run"; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("got  %v\nwant %s", err, want)
	}
	atDisk := disks("{source: {container: {image: maker}}}")
	if err := users["bob"].Create(t.Context(), object(atDisk), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "may not create pods") {
		t.Errorf("at the disk: %v", err)
	}
	vm := object(plain)
	if err := users["gina"].Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Delete(t.Context(), vm) }()
	change := func(user, patch string) error {
		return users[user].Patch(t.Context(), object(plain), client.RawPatch("application/merge-patch+json", []byte(patch)), client.DryRunAll)
	}
	if err := change("bob", `{"spec": {"template": {"spec": {"hostname": "other"}}}}`); err != nil {
		t.Errorf("the container stays: %v", err)
	}
	if err := change("bob", `{"spec": {"template": {"spec": {"volumes": [{"name": "a", "container": {"image": "another"}}]}}}}`); err == nil ||
		!strings.Contains(err.Error(), "may not create pods") {
		t.Errorf("another image: %v", err)
	}
	// We ourselves, as in a restore, bring none that is not there.
	err = admin.Create(t.Context(), object(strings.Replace(plain, "name: contained,", "name: restored,", 1)), client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "a restore cannot bring one") {
		t.Errorf("a restore: %v", err)
	}
}
