package build

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	required = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) (v\S+)(?: // indirect)?$`)
	replaced = regexp.MustCompile(`(?m)^(?:replace)?\s+(\S+)(?: v\S+)? => \S+ (v\S+)$`)
)

// versions returns those of the modules that a go.mod names.
func versions(t *testing.T, dir string) map[string]string {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join("..", "..", dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range required.FindAllSubmatch(mod, -1) {
		out[string(m[1])] = string(m[2])
	}
	for _, m := range replaced.FindAllSubmatch(mod, -1) {
		if _, used := out[string(m[1])]; used {
			out[string(m[1])] = string(m[2])
		}
	}
	return out
}

// TestModulesShareVersions: the programs of a cluster come from several modules. What two of them use has one version, or Kubernetes'
// libraries are compiled once for each: that was half of the first build.
func TestModulesShareVersions(t *testing.T) {
	const translation = "k8s.io/csi-translation-lib" // the provisioner is older than its last change, and little depends on it
	ours := versions(t, ".")
	for _, dir := range []string{"coredns", "csi", "csi/provisioner", "../.."} {
		shared := 0
		for module, version := range versions(t, dir) {
			want, ok := ours[module]
			if !ok || dir == "csi/provisioner" && module == translation {
				continue
			}
			shared++
			if version != want {
				t.Errorf("%s has %s %s, kubebox has %s: require that, or replace it", dir, module, version, want)
			}
		}
		if shared < 20 {
			t.Errorf("%s shares %d modules with kubebox: is its go.mod still read?", dir, shared)
		}
	}
}
