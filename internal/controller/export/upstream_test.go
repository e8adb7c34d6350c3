package export

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	exportv1 "github.com/berth-vm/berth/api/export/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
)

// TestNames: volumes have the names that clients of upstream look for.
func TestNames(t *testing.T) {
	for kind, c := range map[string]struct{ source, want string }{
		exportv1.Claim: {"disk", "disk"}, exportv1.Machine: {"vm", "disk"}, exportv1.Snapshot: {"snap", "out-root"}, // that snapshot does not say which claim it is of
	} {
		e := newWorld(t).run(of(kind, c.source))
		if v := e.Status.Links.Internal.Volumes; len(v) != 1 || v[0].Name != c.want {
			t.Errorf("%s: %+v", kind, v)
		}
	}
}

// TestOneClaimTwice: a claim that a machine has as two volumes is exported once.
func TestOneClaimTwice(t *testing.T) {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "twice"}}
	disk := kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "disk"}}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: kubevirt.VirtualMachineInstanceSpec{
		Volumes: []kubevirt.Volume{{Name: "a", VolumeSource: disk}, {Name: "b", VolumeSource: disk}}}}
	e := newWorld(t, vm).run(of(exportv1.Machine, "twice"))
	if v := e.Status.Links.Internal.Volumes; len(v) != 1 {
		t.Errorf("%+v", v)
	}
}

// TestClaimsCondition: PVCReady has upstream's reasons.
func TestClaimsCondition(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		more   *corev1.Pod
		reason string
		status corev1.ConditionStatus
	}{
		"ready":   {"disk", nil, "PVCBound", corev1.ConditionTrue},
		"missing": {"other", nil, "PVCNotFound", corev1.ConditionFalse},
		"in use":  {"disk", user("disk"), "PVCBound", corev1.ConditionTrue},
	} {
		w := newWorld(t)
		if c.more != nil {
			w.must(w.api.Create(context.Background(), c.more))
		}
		got := w.run(of(exportv1.Claim, c.source)).Status.Conditions[1]
		if got.Type != exportv1.ConditionClaims || got.Reason != c.reason || got.Status != c.status {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestServiceComesBack: a Service that a user deletes is made again, and the server continues to run.
func TestServiceComesBack(t *testing.T) {
	w := newWorld(t)
	e := w.run(of(exportv1.Claim, "disk"))
	before := w.server().UID
	service, err := cluster.Get[corev1.Service](context.Background(), w.api, "team", "virt-export-out")
	w.must(err)
	w.must(w.api.Delete(context.Background(), service))
	e = w.run(e)
	again, err := cluster.Get[corev1.Service](context.Background(), w.api, "team", "virt-export-out")
	w.must(err)
	if again == nil || e.Status.Phase != exportv1.Ready || w.server().UID != before {
		t.Errorf("the Service is %v, the export %s", again, e.Status.Phase)
	}
}
