package migration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	migrationsv1 "github.com/berth-vm/berth/api/migrations/v1alpha1"
	"github.com/berth-vm/berth/internal/testing/golden"
)

// TestPolicy: every set of these policies, for every instance, and the one that counts. None counts that does not select the instance.
func TestPolicy(t *testing.T) {
	type labels = migrationsv1.LabelSelector
	policy := func(name string, s *migrationsv1.Selectors) migrationsv1.MigrationPolicy {
		p := migrationsv1.MigrationPolicy{Spec: migrationsv1.MigrationPolicySpec{Selectors: s}}
		p.Name = name
		return p
	}
	all := []migrationsv1.MigrationPolicy{
		policy("none", nil),
		policy("all", &migrationsv1.Selectors{}),
		policy("big", &migrationsv1.Selectors{VirtualMachineInstanceSelector: labels{"size": "big"}}),
		policy("prod", &migrationsv1.Selectors{NamespaceSelector: labels{"stage": "prod"}}),
		policy("big-prod", &migrationsv1.Selectors{VirtualMachineInstanceSelector: labels{"size": "big"}, NamespaceSelector: labels{"stage": "prod"}}),
		policy("another-big", &migrationsv1.Selectors{VirtualMachineInstanceSelector: labels{"size": "big"}}),
	}
	instances := []struct {
		name                string
		instance, namespace map[string]string
	}{
		{"big in prod", map[string]string{"size": "big", "x": "y"}, map[string]string{"stage": "prod"}},
		{"big in test", map[string]string{"size": "big"}, map[string]string{"stage": "test"}},
		{"unlabelled in prod", nil, map[string]string{"stage": "prod"}},
		{"unlabelled", nil, nil},
	}
	var out strings.Builder
	out.WriteString("# instance: policies -> the one that counts\n")
	for _, i := range instances {
		for set := range 1 << len(all) {
			var some []migrationsv1.MigrationPolicy
			var names []string
			for n, p := range all {
				if set&(1<<n) != 0 {
					some, names = append(some, p), append(names, p.Name)
				}
			}
			counts := func() string {
				if p := Policy(some, i.instance, i.namespace); p != nil {
					return p.Name
				}
				return "-"
			}
			got := counts()
			slices.Reverse(some)
			if counts() != got {
				t.Errorf("%s: the order of %v matters", i.name, names)
			}
			fmt.Fprintf(&out, "%s: %s -> %s\n", i.name, strings.Join(names, " "), got)
		}
	}
	golden.Equal(t, "testdata/policies.txt", out.String())
}
