package backup

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	core "k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// cluster has a machine, a claim and a tracker; what is made ends with the condition.
func cluster(t *testing.T, ends string) *kube.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubevirt.AddToScheme, backupv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "team", Name: name} }
	tracker := &backupv1.VirtualMachineBackupTracker{ObjectMeta: meta("daily")}
	tracker.Spec.Source.Name = "web"
	d := fake.NewSimpleDynamicClient(s, &kubevirt.VirtualMachine{ObjectMeta: meta("web")}, &kubevirt.VirtualMachine{ObjectMeta: meta("db")}, tracker)
	d.PrependReactor("create", "virtualmachinebackups", func(a clienttest.Action) (bool, runtime.Object, error) {
		u := a.(clienttest.CreateAction).GetObject().(interface {
			runtime.Object
			UnstructuredContent() map[string]any
		})
		u.UnstructuredContent()["status"] = map[string]any{"conditions": []any{map[string]any{"type": ends, "status": "True", "message": "it says so"}}}
		return false, nil, nil
	})
	return &kube.Client{Core: core.NewClientset(&corev1.PersistentVolumeClaim{ObjectMeta: meta("backups")}), Dynamic: d, Namespace: "team"}
}

// TestRun: what is made, and what is said of it.
func TestRun(t *testing.T) {
	for name, row := range map[string]struct {
		ends   string
		o      Options
		prints string
		fails  string
		source string
	}{
		"complete":          {"Complete", Options{Machine: "web", Claim: "backups", Wait: true}, "b1: it says so\n", "", "VirtualMachine web"},
		"of a tracker":      {"Complete", Options{Machine: "web", Claim: "backups", Tracker: "daily", Wait: true}, "b1: it says so\n", "", "VirtualMachineBackupTracker daily"},
		"failed":            {"Failed", Options{Machine: "web", Claim: "backups", Wait: true}, "b1: it says so\n", "it says so", "VirtualMachine web"},
		"not waited for":    {"Failed", Options{Machine: "web", Claim: "backups"}, "Backup b1 of VM web is made in PersistentVolumeClaim backups\n", "", "VirtualMachine web"},
		"no machine":        {"Complete", Options{Machine: "none", Claim: "backups"}, "", "there is no VM team/none", ""},
		"no claim":          {"Complete", Options{Machine: "web", Claim: "none"}, "", `"none" not found`, ""},
		"no tracker":        {"Complete", Options{Machine: "web", Claim: "backups", Tracker: "none"}, "", "there is no VirtualMachineBackupTracker team/none", ""},
		"another's tracker": {"Complete", Options{Machine: "db", Claim: "backups", Tracker: "daily"}, "", "is of VM web", ""},
	} {
		t.Run(name, func(t *testing.T) {
			row.o.Name = "b1"
			var out strings.Builder
			b, err := Run(context.Background(), cluster(t, row.ends), row.o, &out)
			if out.String() != row.prints || (err == nil) != (row.fails == "") || err != nil && !strings.Contains(err.Error(), row.fails) {
				t.Errorf("it says %q: %v", out.String(), err)
			}
			if row.source != "" && b.Spec.Source.Kind+" "+b.Spec.Source.Name != row.source {
				t.Errorf("it is of %+v", b.Spec.Source)
			}
		})
	}
}
