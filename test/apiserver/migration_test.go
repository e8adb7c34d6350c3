//go:build apiserver

package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func migration(name, spec string) *unstructured.Unstructured {
	return object(fmt.Sprintf("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceMigration, metadata: {name: %s, namespace: team}, spec: {%s}}", name, spec))
}

// TestMigrationKind: a migration names an instance, permanently; what is said of it the controller says and the API does not.
func TestMigrationKind(t *testing.T) {
	installRights(t)
	ctx := t.Context()
	if err := admin.Create(ctx, migration("nothing", "")); err == nil || !strings.Contains(err.Error(), "vmiName") {
		t.Errorf("a migration of nothing: %v", err)
	}
	create(t, admin, object("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: web, namespace: team}, spec: {domain: {devices: {}}}}"))
	m := migration("move", "vmiName: web")
	eventually(t, "the migration of an instance that was just made", func() (bool, error) {
		err := admin.Create(ctx, m)
		return err == nil, err
	})
	other := m.DeepCopy()
	if err := unstructured.SetNestedField(other.Object, "db", "spec", "vmiName"); err != nil {
		t.Fatal(err)
	}
	if err := admin.Update(ctx, other); err == nil || !strings.Contains(err.Error(), "create another") {
		t.Errorf("a migration whose instance changes: %v", err)
	}
	say := func(account string) error {
		c, err := client.New(as(account), client.Options{Scheme: admin.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return c.Status().Patch(ctx, m.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Pending"}}`)))
	}
	if err := say("berth:berth-api"); !apierrors.IsForbidden(err) {
		t.Errorf("the API says how far a migration is: %v", err)
	}
	if err := say("berth:berth-controller"); err != nil {
		t.Errorf("the controller says how far a migration is: %v", err)
	}
}

// TestMigrationPolicies: the API server takes the policies of KubeVirt's user guide, and refuses what would lose a guest, in words. A controller reads
// them and writes none, and the roles of users do not either.
func TestMigrationPolicies(t *testing.T) {
	installRights(t)
	ctx := t.Context()
	policy := func(spec string) *unstructured.Unstructured {
		return object("{apiVersion: migrations.kubevirt.io/v1alpha1, kind: MigrationPolicy, metadata: {name: gentle}, spec: {" + spec + "}}")
	}
	const selects = "selectors: {namespaceSelector: {hpc-workloads: \"True\", xyz-workloads-type: \"\"}, virtualMachineInstanceSelector: {workload-type: db}}"
	for spec, want := range map[string]string{
		selects + ", allowAutoConverge: true, bandwidthPerMigration: 217Ki, completionTimeoutPerGiB: 23, allowPostCopy: false, maxDowntimeMs: 500": "",
		"selectors: {}":                             "",
		"allowAutoConverge: true":                   "selectors",
		selects + ", allowPostCopy: true":           "allowPostCopy is not supported",
		selects + ", allowWorkloadDisruption: true": "allowWorkloadDisruption is not supported",
		selects + ", bandwidthPerMigration: -1":     "bytes in a second",
		selects + ", completionTimeoutPerGiB: 0":    "completionTimeoutPerGiB",
		selects + ", experimental: {}":              "unknown field",
	} {
		err := admin.Create(ctx, policy(spec), client.DryRunAll, client.FieldValidation("Strict"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	controller, err := client.New(as("berth:berth-controller"), client.Options{Scheme: admin.Scheme()})
	must(t, err)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(policy(selects).GroupVersionKind())
	must(t, controller.List(ctx, list))
	if err := controller.Create(ctx, policy(selects)); !apierrors.IsForbidden(err) {
		t.Errorf("the controller writes a policy: %v", err)
	}
	for _, name := range []string{"kubevirt.io:edit", "kubevirt.io:view", "kubevirt.io:migrate"} {
		var role rbacv1.ClusterRole
		must(t, admin.Get(ctx, client.ObjectKey{Name: name}, &role))
		for _, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, "migrations.kubevirt.io") && !slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) {
				t.Errorf("%s may %v policies", name, rule.Verbs)
			}
		}
	}
}
