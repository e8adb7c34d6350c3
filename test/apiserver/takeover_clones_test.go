//go:build apiserver

package apiserver

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/takeover"
)

// theirToken is shaped as CDI's are. CDI's key is CDI's: no one else can tell whether it is genuine.
const theirToken = "eyJhbGciOiJQUzI1NiJ9.eyJvcGVyYXRpb24iOiJDbG9uZSJ9.c2lnbmF0dXJl"

const snapshotKind = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: volumesnapshots.snapshot.storage.k8s.io,
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}},
  spec: {group: snapshot.storage.k8s.io, scope: Namespaced, names: {kind: VolumeSnapshot, listKind: VolumeSnapshotList, plural: volumesnapshots},
    versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

// clones makes what CDI has of devices and clones: done, under way, and waiting.
func (p *peer) clones() {
	p.Helper()
	p.create(object(`{apiVersion: v1, kind: Namespace, metadata: {name: shared}}`))
	p.create(object(snapshotKind))
	ofClaim := func(namespace string) *cdiv1.DataVolumeSource {
		return &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "device"}}
	}
	ofSnapshot := &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: team, Name: "then"}}
	step := func(is string) map[string]string { return map[string]string{"cdi.kubevirt.io/clonePhase": is} }
	for _, o := range []theirs{
		{name: "device", phase: cdiv1.Succeeded, block: true, notes: map[string]string{"cdi.kubevirt.io/storage.pod.phase": "Succeeded"}},
		{name: "near", phase: cdiv1.Succeeded, block: true, source: ofClaim(team), token: theirToken, notes: step("Succeeded")},
		{name: "far", phase: cdiv1.Succeeded, block: true, source: ofClaim("shared"), token: theirToken, notes: step("Succeeded")},
		{name: "restored", phase: cdiv1.Succeeded, source: ofSnapshot, notes: step("Succeeded")},
	} {
		o.class = "soon"
		p.bind(p.volume(o))
	}
	for _, o := range []theirs{
		{name: "device-moving", phase: cdiv1.ImportInProgress, block: true},
		{name: "near-moving", phase: cdiv1.CloneInProgress, block: true, source: ofClaim(team), token: theirToken, notes: step("HostClone")},
		{name: "far-moving", phase: cdiv1.CloneInProgress, block: true, source: ofClaim("shared"), token: theirToken, notes: step("HostClone")},
		{name: "restored-moving", phase: cdiv1.CloneFromSnapshotSourceInProgress, source: ofSnapshot, notes: step("SnapshotClone")},
	} {
		o.class = "soon"
		p.volume(o)
	}
	for _, o := range []theirs{
		{name: "near-waiting", phase: cdiv1.PendingPopulation, block: true, source: ofClaim(team), token: theirToken},
		{name: "far-waiting", phase: cdiv1.PendingPopulation, block: true, source: ofClaim("shared"), token: theirToken},
		{name: "restored-waiting", phase: cdiv1.PendingPopulation, source: ofSnapshot},
	} {
		o.class = "late"
		p.volume(o)
	}
	eventually(p.T, "snapshots to be served", func() (bool, error) {
		err := p.kube.Create(p.Context(), object(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshot, metadata: {namespace: team, name: then},
			spec: {source: {persistentVolumeClaimName: device}}, status: {readyToUse: true, restoreSize: 1Gi}}`))
		return err == nil, err
	})
}

// finishes has CDI end a clone: its claim is bound, and it says so.
func (p *peer) finishes(name string) {
	p.Helper()
	p.bind(p.claim(name))
	p.phase(name, cdiv1.Succeeded)
}

// TestTakeoverOfClones: devices, clones with CDI's token and clones of snapshots: what is done stays as it is, whatever its token, what is
// under way is CDI's to finish, what waits beside its source is taken, and a token that Berth cannot check is trusted with nothing.
func TestTakeoverOfClones(t *testing.T) {
	p := newPeer(t)
	p.clones()
	kubectl, err := kube.New(p.config, team)
	must(t, err)
	before := p.state()
	var out bytes.Buffer
	const done, moving, waits = "recorded on its claim", "CDI is filling it", "nothing was written"
	err = takeover.Check(t.Context(), kubectl, &out)
	if err == nil || !strings.Contains(err.Error(), "far-waiting: it is cloned from another namespace") {
		t.Errorf("a clone that only CDI's token allows is not refused: %v", err)
	}
	says(t, out.String(), map[string]string{
		"device": done, "near": done, "far": done, "restored": done,
		"device-moving": moving, "near-moving": moving, "far-moving": moving, "restored-moving": moving,
		"near-waiting": waits, "restored-waiting": waits, "far-waiting": "refused",
	})
	if err := takeover.Run(t.Context(), kubectl, takeover.Options{Timeout: patience}, &out); err == nil || p.state() != before {
		t.Errorf("taken over in spite of it: %v\n%s", err, p.state())
	}

	p.phase("far-waiting", cdiv1.CloneInProgress) // its first consumer came
	finished := make(chan error, 1)
	go func() { finished <- takeover.Run(t.Context(), kubectl, takeover.Options{Timeout: patience}, &out) }()
	for _, name := range []string{"device-moving", "near-moving", "far-moving", "restored-moving", "far-waiting"} {
		select {
		case err := <-finished:
			t.Fatalf("%s was not awaited: %v\n%s", name, err, out.String())
		case <-time.After(time.Second):
		}
		p.finishes(name)
	}
	must(t, <-finished)
	defer p.start()()
	for _, name := range []string{"device", "near", "far", "restored", "device-moving", "near-moving", "far-moving", "restored-moving", "far-waiting"} {
		p.comesTo(name, cdiv1.Succeeded)
		if c := p.claim(name); c.Annotations["cdi.kubevirt.io/storage.populatedFor"] != name {
			t.Errorf("nothing is recorded on claim %s: %v", name, c.Annotations)
		}
	}
	p.comesTo("near-waiting", cdiv1.PendingPopulation, cdiv1.WaitForFirstConsumer)
	p.comesTo("restored-waiting", cdiv1.PendingPopulation, cdiv1.WaitForFirstConsumer)
	p.trustsNobody()
	var pods corev1.PodList
	must(t, p.kube.List(t.Context(), &pods))
	if len(pods.Items) > 0 {
		t.Errorf("something is filled again: %s", pods.Items[0].Name)
	}
}

// trustsNobody: a clone with CDI's token that is made when Berth is there is not made of what it names.
func (p *peer) trustsNobody() {
	p.Helper()
	must(p.T, p.kube.Create(p.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: "device"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("soon"), Resources: p.claim("device").Spec.Resources, VolumeMode: ptr.To(corev1.PersistentVolumeBlock),
		AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}}}))
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "late"}}
	p.get("far").Spec.DeepCopyInto(&v.Spec)
	v.Annotations = map[string]string{"cdi.kubevirt.io/storage.clone.token": theirToken}
	p.create(v)
	eventually(p.T, "the clone to be refused", func() (bool, error) {
		now := p.get("late")
		for _, c := range now.Status.Conditions {
			if c.Reason == "CloneNotAuthorized" && strings.Contains(c.Message, "the clone token is malformed") {
				return true, nil
			}
		}
		return false, fmt.Errorf("%s %v", now.Status.Phase, now.Status.Conditions)
	})
}

// comesTo waits until Berth has said one of these of a volume.
func (p *peer) comesTo(name string, want ...cdiv1.DataVolumePhase) {
	p.Helper()
	eventually(p.T, name+" to be seen by Berth", func() (bool, error) {
		v := p.get(name)
		said := len(v.Status.Conditions) > 0
		for _, w := range want {
			if said && v.Status.Phase == w {
				return true, nil
			}
		}
		return false, fmt.Errorf("%s %v", v.Status.Phase, v.Status.Conditions)
	})
}
