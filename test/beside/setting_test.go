//go:build peers

package beside

import (
	"fmt"
	"strings"
)

// nodeCount simulated nodes, each with volumes of its own.
const nodeCount = 2

// setting holds the objects that an administrator has made before: KubeVirt's own resource, nodes as its agent labels them, and a
// class whose claims wait for their first consumer. There is no real driver: volumes exist already, and the test takes the
// snapshots.
var setting = namespaces + kubevirt + class + nodes()

const namespaces = `
---
{apiVersion: v1, kind: Namespace, metadata: {name: berth}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: kubevirt}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: team}}
`

const kubevirt = `
---
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt, namespace: kubevirt}
spec:
  configuration:
    developerConfiguration: {useEmulation: true, featureGates: [Snapshot, HotplugVolumes]}
`

const class = `
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: waits}
provisioner: driver.example.com
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: waits}
driver: driver.example.com
deletionPolicy: Delete
`

func nodes() string {
	var out strings.Builder
	for i := range nodeCount {
		fmt.Fprintf(&out, `
---
apiVersion: v1
kind: Node
metadata:
  name: node-%[1]d
  labels: {kubernetes.io/hostname: node-%[1]d, kubernetes.io/arch: amd64, kubevirt.io/schedulable: "true", machine-type.node.kubevirt.io/q35: "true"}
status:
  capacity: &room {cpu: "8", memory: 16Gi, pods: "100", ephemeral-storage: 100Gi, devices.kubevirt.io/kvm: "100"}
  allocatable: *room
`, i)
		for v := range 5 {
			fmt.Fprintf(&out, `
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: volume-%[1]d-%[2]d}
spec:
  storageClassName: waits
  accessModes: [ReadWriteOnce]
  capacity: {storage: 2Gi}
  csi: {driver: driver.example.com, volumeHandle: volume-%[1]d-%[2]d}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-%[1]d]}]}]}}
`, i, v)
		}
	}
	return out.String()
}

// snapshotKinds returns the kinds of volume snapshots, with room for whatever is in them: who serves them here is the test.
func snapshotKinds() string {
	var out strings.Builder
	for _, k := range []struct{ kind, scope string }{
		{"VolumeSnapshot", "Namespaced"}, {"VolumeSnapshotClass", "Cluster"}, {"VolumeSnapshotContent", "Cluster"},
	} {
		plural := strings.ToLower(k.kind) + "s"
		plural = strings.Replace(plural, "classs", "classes", 1)
		fmt.Fprintf(&out, `
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[2]s.snapshot.storage.k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}
spec:
  group: snapshot.storage.k8s.io
  scope: %[3]s
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s}
  versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, k.kind, plural, k.scope)
	}
	return out.String()
}
