//go:build apiserver

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func migration(name, spec string) *unstructured.Unstructured {
	return object(fmt.Sprintf("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceMigration, metadata: {name: %s, namespace: team}, spec: {%s}}", name, spec))
}

// TestMigrationKind: a migration names an instance, for good; what is said of it the controller says and the API does not.
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
