package web

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	backup "github.com/berth-vm/berth/api/backup/v1alpha1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// TestOnlyOfACompleteBackup: a machine is made of nothing but a backup that is complete and in a claim, whatever a request names.
func TestOnlyOfACompleteBackup(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := backup.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	made := func(name, condition string, checkpoint *string, pulled bool) *backup.VirtualMachineBackup {
		b := &backup.VirtualMachineBackup{TypeMeta: metav1.TypeMeta{APIVersion: backup.GroupVersion.String(), Kind: "VirtualMachineBackup"}, ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
		b.Spec.PvcName = new("backups")
		b.Status = &backup.VirtualMachineBackupStatus{CheckpointName: checkpoint, Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue}}}
		if pulled {
			b.Spec.Mode = new(backup.PullMode)
		}
		return b
	}
	fresh := made("fresh", "", nil, false)
	fresh.Status = nil
	c := &kube.Client{Namespace: "team", Dynamic: dynamicfake.NewSimpleDynamicClient(scheme, fresh, made("failed", backup.ConditionFailed, new("b1"), false),
		made("nameless", backup.ConditionComplete, nil, false), made("pulled", backup.ConditionComplete, new("b1"), true))}
	for _, name := range []string{"fresh", "failed", "nameless", "pulled", "none", ""} {
		if _, err := fromBackup(t.Context(), c, "web", name); err == nil || !strings.Contains(err.Error(), "no complete backup") && name != "" {
			t.Errorf("%q: %v", name, err)
		}
	}
}
