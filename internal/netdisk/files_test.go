package netdisk

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// TestFilesOfAProtocol: only the files that CONTRIBUTING lists know which protocols there are, so that a new one changes no other. A field that
// other kinds have as well, such as HTTP, is not looked for.
func TestFilesOfAProtocol(t *testing.T) {
	const root = "../.."
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[kubevirt.NetworkSource]()) {
		if f.Name != "HTTP" {
			fields = append(fields, f.Name)
		}
	}
	named := regexp.MustCompile(`\.(` + strings.Join(fields, "|") + `)\b|\*(` + strings.Join(fields, "|") + `)Source\b`)
	found := map[string]bool{}
	for _, top := range []string{"api", "cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasPrefix(d.Name(), "zz_generated") {
				return err
			}
			text, err := os.ReadFile(path)
			name, _ := filepath.Rel(root, path)
			if (strings.Contains(string(text), `"github.com/berth-vm/berth/api/kubevirt/v1"`) || strings.HasPrefix(name, "api/kubevirt/")) && named.Match(text) {
				found[name] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\n**A protocol** ")
	list, _, _ = strings.Cut(list, "\n\n")
	var want []string
	for _, m := range regexp.MustCompile("`([^`]+\\.go)`").FindAllStringSubmatch(list, -1) {
		want = append(want, m[1])
	}
	for _, file := range want {
		if !found[file] {
			t.Errorf("CONTRIBUTING lists %s, which names no protocol", file)
		}
		delete(found, file)
	}
	if len(want) == 0 {
		t.Error("CONTRIBUTING has no list of the files of a protocol")
	}
	for file := range found {
		t.Errorf("%s names protocols of network disks: let it ask the table of internal/netdisk", file)
	}
	if slices.Sort(want); len(slices.Compact(want)) > 4 {
		t.Errorf("a protocol is known in %v", want)
	}
}
