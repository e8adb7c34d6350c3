//go:build peers && e2e

package takeover

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// device returns a volume in mode Block.
func device(name, source string) string {
	return strings.Replace(dataVolume(name, "localdisk-immediate", source, ""), "Filesystem", "Block", 1)
}

func ofClaim(namespace, name string) string {
	return fmt.Sprintf("pvc: {namespace: %s, name: %s}", namespace, name)
}

const snapshot = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: then}
spec: {volumeSnapshotClassName: localdisk, source: {persistentVolumeClaimName: csi}}
`

// fillClones has CDI fill a device, clone one of another namespace, which it allows with a token of its own, and restore a snapshot. Another
// that is to be restored waits for its first consumer.
func (s *site) fillClones(shared *site, from *sources) {
	s.T.Helper()
	shared.apply(device("origin", fromURL(from.url+"/origin")))
	shared.waitField("dv", "origin", ".status.phase", "Succeeded")
	s.apply(snapshot)
	s.waitField("volumesnapshot", "then", ".status.readyToUse", "true")
	restored := func(name, class string) string { // as large as the snapshot, which CDI takes for larger than it was asked for
		v := dataVolume(name, class, fmt.Sprintf("snapshot: {namespace: %s, name: then}", s.Namespace), "")
		return strings.Replace(v, ", resources: {requests: {storage: 256Mi}}", "", 1)
	}
	s.apply(device("device", fromURL(from.url+"/device")) + device("far", ofClaim(shared.Namespace, "origin")) +
		restored("restored", "localdisk-immediate") + restored("restored-waiting", "localdisk"))
	for name, disk := range map[string]string{"device": "device", "far": "origin", "restored": "csi"} {
		s.waitField("dv", name, ".status.phase", "Succeeded")
		if got := s.begins(name); got != sum(from.disks[disk]) {
			s.T.Fatalf("CDI has filled %s with something else: %s", name, got)
		}
	}
	s.waitField("dv", "restored-waiting", ".status.phase", "PendingPopulation")
	if token := s.kubectl("", "get", "dv", "far", "-o", `jsonpath={.metadata.annotations.cdi\.kubevirt\.io/storage\.clone\.token}`); token == "" {
		s.T.Fatal("CDI has given the clone no token")
	}
}

// beginClone has CDI begin a clone of another namespace that cannot end before a pod there has stopped using the source. It
// returns what ends the pod.
func (s *site) beginClone(shared *site) (letGo func()) {
	s.T.Helper()
	shared.Start(framework.Pod{Name: "user", Script: "sleep 3600", Claims: []string{"origin"}})
	shared.WaitRunning("user")
	s.apply(device("slow-far", ofClaim(shared.Namespace, "origin")))
	s.waitField("dv", "slow-far", ".status.phase", "CSICloneInProgress")
	return func() { shared.Delete("user") }
}

// holdsOnly checks that a namespace has these claims with these bytes, and nothing that served to clone them.
func (s *site) holdsOnly(before map[string]held) {
	s.T.Helper()
	if all := s.claims(); len(all) != len(before) {
		s.T.Errorf("claims that nobody made are in %s: %v", s.Namespace, all)
	}
	if now := s.done(slices.Collect(maps.Keys(before))); !maps.Equal(now, before) {
		s.T.Errorf("what was cloned from was %v and is %v", before, now)
	}
}
