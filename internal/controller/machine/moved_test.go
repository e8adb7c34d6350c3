package machine

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	migrationsv1 "github.com/berth-vm/berth/api/migrations/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/volumeupdate"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// TestMigrationState: an instance that has moved shows from where, to where and when, in the fields that clients read.
func TestMigrationState(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways, move: moves})
	w.settle()
	moveTo("one")(w)
	w.settle()
	m, err := cluster.Get[kubevirt.VirtualMachineInstanceMigration](t.Context(), w.api, ns, "one")
	w.must(err)
	for whose, s := range map[string]*kubevirt.MigrationState{"instance": w.instance().Status.MigrationState, "migration": m.Status.MigrationState} {
		if s == nil || s.StartTimestamp == nil || s.EndTimestamp == nil || s.TargetNodeDomainReadyTimestamp == nil || !s.TargetNodeDomainDetected {
			t.Fatalf("%s: a time is missing: %+v", whose, s)
		}
		if s.TargetNodeDomainReadyTimestamp.Before(s.StartTimestamp) || s.EndTimestamp.Before(s.TargetNodeDomainReadyTimestamp) {
			t.Errorf("%s: it is ready at %s, between %s and %s", whose, s.TargetNodeDomainReadyTimestamp, s.StartTimestamp, s.EndTimestamp)
		}
		if !s.Completed || s.Failed || s.AbortRequested || s.AbortStatus != "" || s.MigrationUID != m.UID || s.Mode != kubevirt.PreCopy ||
			s.SourceNode != "node1" || s.TargetNode != "node2" || s.SourcePod == "" || s.TargetPod == "" || s.TargetNodeAddress == "" {
			t.Errorf("%s: %+v", whose, s)
		}
	}
}

// TestUpdateIsKept: the migration of a changed volume is not cancelled when its guest has arrived and only the launchers have not
// reported it yet; one whose claims are no longer wanted is.
func TestUpdateIsKept(t *testing.T) {
	volume := func(claim string) []kubevirt.Volume {
		return []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: claim}}}}
	}
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vmName, UID: "run"}}
	migration := kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: volumeupdate.Updating + "1", UID: "move-uid",
		OwnerReferences: []metav1.OwnerReference{{Kind: "VirtualMachineInstance", Name: vmName, UID: "run", Controller: new(true)}}}}
	task, err := json.Marshal(launcherapi.Machine{Name: vmName, Incoming: "move-uid", Updated: map[string]string{"root": "old"}, Spec: kubevirt.VirtualMachineInstanceSpec{Volumes: volume("new")}})
	if err != nil {
		t.Fatal(err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: launcherpod.TargetName(i, types.UID("move-uid")), UID: "target",
		Annotations: map[string]string{render.AnnMachine: string(task)}}}
	for claim, stale := range map[string]bool{"new": false, "old": true} {
		i.Spec.Volumes = volume(claim)
		s := &observed.Instance{Run: diskstate.Run{Object: i, Launcher: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "source", UID: "source"}}}, Others: []*corev1.Pod{target}}
		if got := volumeupdate.StaleUpdate(s, []kubevirt.VirtualMachineInstanceMigration{migration}); (got != nil) != stale {
			t.Errorf("with claim %s: called off %v", claim, got != nil)
		}
	}
}

// TestMigrationPolicy: a migration has the limits of the policy that selects its instance, what that leaves out is as in the configuration, and says so.
func TestMigrationPolicy(t *testing.T) {
	policy := func(name string, s migrationsv1.Selectors, mib int64) *migrationsv1.MigrationPolicy {
		return &migrationsv1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: migrationsv1.MigrationPolicySpec{
			Selectors: &s, BandwidthPerMigration: resource.NewQuantity(mib<<20, resource.BinarySI), AllowAutoConverge: new(true), MaxDowntimeMs: new(int64(700))}}
	}
	others := policy("others", migrationsv1.Selectors{NamespaceSelector: migrationsv1.LabelSelector{"stage": "test"}}, 1)
	ours := policy("ours", migrationsv1.Selectors{NamespaceSelector: migrationsv1.LabelSelector{"stage": "prod"}}, 64)
	for name, c := range map[string]struct {
		policies []*migrationsv1.MigrationPolicy
		want     launcherapi.MoveLimits
		policy   string
	}{
		"none":      {nil, launcherapi.MoveLimits{PerGiB: 150, Still: 150}, ""},
		"another's": {[]*migrationsv1.MigrationPolicy{others}, launcherapi.MoveLimits{PerGiB: 150, Still: 150}, ""},
		"its own":   {[]*migrationsv1.MigrationPolicy{others, ours}, launcherapi.MoveLimits{Bandwidth: 64 << 20, PerGiB: 150, Still: 150, Converge: true, Downtime: 700}, "ours"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scenario{strategy: kubevirt.RunAlways, move: moves})
			for _, p := range c.policies {
				w.must(w.api.Create(t.Context(), p.DeepCopy()))
			}
			namespace, err := cluster.Get[corev1.Namespace](t.Context(), w.api, "", ns)
			w.must(err)
			namespace.Labels = map[string]string{"stage": "prod"}
			w.must(w.api.Update(t.Context(), namespace))
			w.settle()
			limits, policy, err := w.r.Migration.Limits(t.Context(), w.instance())
			if w.must(err); limits != c.want || policy != c.policy {
				t.Errorf("a source is told %+v of policy %q", limits, policy)
			}
			moveTo("one")(w)
			w.settle()
			s := w.instance().Status.MigrationState
			if s == nil || !s.Completed || ptr.Deref(s.MigrationPolicyName, "") != c.policy || s.MigrationConfiguration == nil ||
				s.MigrationConfiguration.BandwidthPerMigration.Value() != c.want.Bandwidth || *s.MigrationConfiguration.AllowAutoConverge != c.want.Converge ||
				*s.MigrationConfiguration.CompletionTimeoutPerGiB != 150 {
				t.Errorf("the instance shows %+v", s)
			}
		})
	}
}
