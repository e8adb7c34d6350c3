package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// keysPage has a row for every key that the programs write or read on objects.
const keysPage = "keys.md"

var (
	// key is a key of ours, or one of cdi.kubevirt.io and kubevirt.io, wherever it stands in a text.
	key = regexp.MustCompile(`(?:[a-z0-9-]+\.)*(?:berth\.dev|kubevirt\.io)/[A-Za-z0-9._-]*`)
	// version matches the version that follows an API group, as opposed to a domain.
	version = regexp.MustCompile(`/v[0-9]+((alpha|beta)[0-9]+)?$`)
	// quoted is one of the keys of a row's first cell.
	quoted   = regexp.MustCompile("`([^`]+)`")
	aTest    = regexp.MustCompile("`(?:Test|Fuzz)[A-Za-z0-9_]+")
	prefixed = regexp.MustCompile(`^(?:berth\.dev|(?:cdi\.)?kubevirt\.io)/$`) // the domain itself, by which keys are told apart
)

// notKeys have the form of a key and are something else: kinds, modules, the name of a provisioner.
var notKeys = []string{
	"kubevirt.io/VirtualMachine", "snapshot.kubevirt.io/VirtualMachineSnapshot", "kubevirt.io/hostpath-provisioner", "instancetype.kubevirt.io/",
}

// keysIn are the keys in the text of a literal. An image has a tag or a path after what looks like a key.
func keysIn(text string) []string {
	var out []string
	for _, at := range key.FindAllStringIndex(text, -1) {
		found, rest := strings.TrimRight(text[at[0]:at[1]], "."), text[at[1]:]
		if strings.HasSuffix(text[at[0]:at[1]], "-") || strings.HasSuffix(text[at[0]:at[1]], ".") {
			found = text[at[0]:at[1]] // a prefix that something is added to
		}
		image := strings.HasPrefix(rest, ":") && !strings.HasPrefix(rest, ": ") || strings.HasPrefix(rest, "@") || strings.HasPrefix(rest, "/")
		if !image && !version.MatchString(found) && !prefixed.MatchString(found) && !slices.Contains(notKeys, found) {
			out = append(out, found)
		}
	}
	return out
}

// keysOfSource are the keys in the string literals of all programs, and those in the manifests. What is only there for tests and for building is
// left out.
func keysOfSource(t *testing.T) map[string]string {
	t.Helper()
	root, out := filepath.Join("..", ".."), map[string]string{}
	note := func(path string, keys []string) {
		for _, k := range keys {
			out[k] = strings.TrimPrefix(path, root+"/")
		}
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (strings.HasPrefix(name, ".") && path != root || slices.Contains([]string{"testdata", "testing", "test", "hack", "bin", "crd", "images", "bench"}, name)) {
			return fs.SkipDir
		}
		inConfig := strings.HasPrefix(path, filepath.Join(root, "config")+"/")
		switch {
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			keys, err := keysOfFile(path)
			note(path, keys)
			return err
		case strings.HasSuffix(name, ".yaml") && inConfig:
			text, err := os.ReadFile(path)
			for line := range strings.SplitSeq(string(text), "\n") {
				if !strings.Contains(line, "newName:") { // of an image
					note(path, slices.DeleteFunc(keysIn(line), func(k string) bool { return !strings.HasPrefix(k, "berth.dev/") }))
				}
			}
			return err
		}
		return nil
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("%d keys: %v", len(out), err)
	}
	return out
}

func keysOfFile(path string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			if err == nil {
				out = append(out, keysIn(text)...)
			}
		}
		return true
	})
	return out, nil
}

// keyRow is a row of the page.
type keyRow struct{ by, believed, proof, tests string }

// rowsOf are the rows of the tables of the page, each key of the first cell with its own.
func rowsOf(t *testing.T) map[string]keyRow {
	t.Helper()
	text, err := os.ReadFile(keysPage)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]keyRow{}
	for n, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 5 {
			t.Errorf("%s:%d has %d cells", keysPage, n+1, len(cells))
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
			if len(keysIn(m[1])) == 0 {
				continue // a field
			}
			if _, twice := out[m[1]]; twice {
				t.Errorf("%s:%d: %s has two rows", keysPage, n+1, m[1])
			}
			out[m[1]] = keyRow{cells[1], cells[2], cells[3], cells[4]}
		}
	}
	return out
}

// told: the key has a row; or it is the first part of keys that have one, or one of those that begin as a row says.
func told(rows map[string]keyRow, k string) bool {
	for has := range rows {
		if has == k || strings.HasSuffix(k, ".") && strings.HasPrefix(has, k) || strings.HasSuffix(has, ".") && strings.HasPrefix(k, has) {
			return true
		}
	}
	return false
}

// TestEveryKeyHasARow: the page says of every key who writes it, what is believed because of it and what proves that, and which tests show it. A
// key of the source that has no row fails it, and a row whose key is gone.
func TestEveryKeyHasARow(t *testing.T) {
	source, rows := keysOfSource(t), rowsOf(t)
	for _, k := range slices.Sorted(maps.Keys(source)) {
		if !told(rows, k) {
			t.Errorf("%s of %s has no row in %s: say who can write it, what is believed because of it, and what proves it", k, source[k], keysPage)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		if source[k] == "" {
			t.Errorf("%s has a row for %s, which no program knows any more", keysPage, k)
		}
		if r := rows[k]; !aTest.MatchString(r.tests) {
			t.Errorf("%s: no test shows what is said of %s", keysPage, k)
		} else if r.by == "" || r.believed == "" || r.proof == "" {
			t.Errorf("%s: the row of %s is not whole", keysPage, k)
		}
	}
}

// TestKeysOfThePolicy: the keys that the policy lets only Berth write on pods are those that the page says so of.
func TestKeysOfThePolicy(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const name = "berth-pods"
	held := []string{}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var policy struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct {
				Variables []struct{ Expression string }
			}
		}
		if err := yaml.Unmarshal([]byte(document), &policy); err != nil {
			t.Fatal(err)
		}
		if policy.Kind != "ValidatingAdmissionPolicy" || policy.Metadata.Name != name {
			continue
		}
		for _, v := range policy.Spec.Variables {
			held = append(held, keysIn(v.Expression)...)
		}
	}
	said := []string{}
	for k, r := range rowsOf(t) {
		if strings.Contains(r.by, "`"+name+"`") {
			said = append(said, k)
		}
	}
	slices.Sort(held)
	slices.Sort(said)
	if diff := cmp.Diff(said, held); diff != "" {
		t.Errorf("the policy differs from %s (-page +policy):\n%s", keysPage, diff)
	}
}

// TestNoStateTellsToFakeAFact: no message advises a user to set manually an annotation that says that a claim is filled.
func TestNoStateTellsToFakeAFact(t *testing.T) {
	text, err := os.ReadFile("states.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"storage.populatedFor", "storage.prePopulated", "storage.pod.phase", "berth.dev/may-fill"} {
		if strings.Contains(string(text), key) {
			t.Errorf("a message of states.md names %s, which is a record and not for people to write", key)
		}
	}
}
