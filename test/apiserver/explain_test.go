//go:build apiserver

package apiserver

import (
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/config/crd"
)

// TestExplain: the API server tells `kubectl explain` what a field is, for kinds of ours and of the API modules.
func TestExplain(t *testing.T) {
	t.Parallel()
	c, err := discovery.NewDiscoveryClientForConfig(baseCfg)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := c.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for group, want := range map[string]string{
		"apis/kubevirt.io/v1":          "UsageType is the kind of medium that the copy is kept on.",
		"apis/cdi.kubevirt.io/v1beta1": "What it waits for and what to do.",
	} {
		text, err := paths[group].Schema("application/json")
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %q: %v", group, want, err)
		}
	}
}

// TestDefinitionsAreApplied: the largest definition, with who applied which of its fields, is small enough for the API server.
func TestDefinitionsAreApplied(t *testing.T) {
	t.Parallel()
	text, err := crd.Files.ReadFile("kubevirt/kubevirt.io_virtualmachines.yaml") // the largest
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]any
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, who := range []client.FieldOwner{"kubectl", "a-second-owner"} {
		if err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(asObject(d)), who, client.ForceOwnership); err != nil {
			t.Errorf("%s applies it: %v", who, err)
		}
	}
}
