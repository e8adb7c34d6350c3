//go:build apiserver

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func configuration(name, spec string) *unstructured.Unstructured {
	return object(fmt.Sprintf("{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: %s, namespace: team}, spec: {configuration: {%s}}}", name, spec))
}

// TestConfigurationKind: settings of migrations that make no sense, or that are not supported, are refused with the reason.
func TestConfigurationKind(t *testing.T) {
	for name, c := range map[string]struct{ name, spec, says string }{
		"everything": {"kubevirt", "evictionStrategy: LiveMigrate, migrations: {parallelMigrationsPerCluster: 3, parallelOutboundMigrationsPerNode: 1, " +
			"bandwidthPerMigration: 64Mi, completionTimeoutPerGiB: 300, progressTimeout: 60, allowAutoConverge: true, allowPostCopy: false}", ""},
		"another name":      {"other", "", "its name is kubevirt"},
		"another strategy":  {"kubevirt", "evictionStrategy: Sometimes", "Unsupported value"},
		"post-copy":         {"kubevirt", "migrations: {allowPostCopy: true}", "lost with either of them"},
		"without TLS":       {"kubevirt", "migrations: {disableTLS: true}", "always sent encrypted"},
		"another network":   {"kubevirt", "migrations: {network: fast}", "network of the pods"},
		"less than nothing": {"kubevirt", "migrations: {bandwidthPerMigration: \"-1\"}", "bytes in a second"},
		"none at once":      {"kubevirt", "migrations: {parallelMigrationsPerCluster: 0}", "greater than or equal to 1"},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), configuration(c.name, c.spec), client.DryRunAll)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestEvictionOfALauncher: the eviction of a launcher whose guest is to move is refused with what clients know, and the pod is marked.
func TestEvictionOfALauncher(t *testing.T) {
	ctx := t.Context()
	i := object("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: drained, namespace: team}, spec: {evictionStrategy: LiveMigrate, domain: {devices: {}}}}")
	create(t, admin, i)
	i.Object["status"] = map[string]any{"phase": "Running", "conditions": []any{map[string]any{
		"type": "LiveMigratable", "status": "True", "lastTransitionTime": metav1.Now().UTC().Format("2006-01-02T15:04:05Z")}}}
	if err := admin.Status().Update(ctx, i); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("virt-launcher-drained-%.5s", i.GetUID())
	pod := object(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: team, labels: {kubevirt.io: virt-launcher},
		ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: drained, uid: %s, controller: true}]},
		spec: {containers: [{name: compute, image: none}]}}`, name, i.GetUID()))
	create(t, admin, pod)
	clients, err := kubernetes.NewForConfig(as("kube-system:nobody"))
	if err != nil {
		t.Fatal(err)
	}
	evict := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	if err := clients.PolicyV1().Evictions("team").Evict(ctx, evict); !apierrors.IsForbidden(err) {
		t.Errorf("somebody without the right to evict: %v", err)
	}
	clients, err = kubernetes.NewForConfig(baseCfg)
	if err != nil {
		t.Fatal(err)
	}
	dry := evict.DeepCopy()
	dry.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	marked := func() bool {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		return pod.GetAnnotations()["berth.dev/evacuate"] != ""
	}
	eventually(t, "the webhook knows the pod", func() (bool, error) {
		err := clients.PolicyV1().Evictions("team").Evict(ctx, dry)
		return apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), `Eviction triggered evacuation of VMI "team/drained"`), err
	})
	if marked() {
		t.Error("a dry run marks the pod")
	}
	if err := clients.PolicyV1().Evictions("team").Evict(ctx, evict); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the eviction: %v", err)
	}
	if !marked() {
		t.Error("the pod is not marked")
	}
}
