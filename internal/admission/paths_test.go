package admission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// TestPaths: every webhook of the manifests has a path here, a different one each, and none has a path in the manifests: applying
// them again would overwrite it.
func TestPaths(t *testing.T) {
	left := map[string]bool{}
	of := map[string]string{}
	for name, path := range Paths {
		left[name] = true
		if other := of[path]; other != "" {
			t.Errorf("%s and %s share %s", name, other, path)
		}
		of[path] = name
	}
	files, err := filepath.Glob("../../config/webhook/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "WebhookConfiguration\n") {
			continue
		}
		var c admissionregistration.ValidatingWebhookConfiguration // what is looked at, the other kind has too
		if err := yaml.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		for _, h := range c.Webhooks {
			if Paths[h.Name] == "" || !left[h.Name] {
				t.Errorf("%s: webhook %s has no path, or is there twice", file, h.Name)
			}
			if h.ClientConfig.Service.Path != nil {
				t.Errorf("%s: webhook %s has a path", file, h.Name)
			}
			delete(left, h.Name)
		}
	}
	if len(left) > 0 {
		t.Errorf("no manifest has the webhooks %v", left)
	}
}
