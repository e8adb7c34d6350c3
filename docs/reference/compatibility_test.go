// Package reference holds the reference pages to the code they are about.
package reference

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/state"
)

// row is a line of one of the page's tables.
type row struct {
	name, status string
	tests        []string // that show it
}

// readPage reads the tables of compatibility.md by the heading they stand under.
func readPage(t *testing.T) map[string][]row {
	t.Helper()
	f, err := os.Open("compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line := regexp.MustCompile("^\\| `(.*)` \\| ([a-z ]+) \\|([^|]*)\\|")
	test := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	out := map[string][]row{}
	section := ""
	for s := bufio.NewScanner(f); s.Scan(); {
		text := s.Text()
		if strings.HasPrefix(text, "#") {
			section = strings.TrimLeft(text, "# ")
		}
		if !strings.HasPrefix(text, "| `") {
			continue
		}
		m := line.FindStringSubmatch(text)
		if m == nil || !slices.Contains([]string{"works", "refused", "not there"}, m[2]) {
			t.Errorf("not a row: %s", text)
			continue
		}
		if slices.ContainsFunc(out[section], func(r row) bool { return r.name == m[1] }) {
			t.Errorf("%s: %s is there twice", section, m[1])
		}
		r := row{name: m[1], status: m[2]}
		for _, found := range test.FindAllStringSubmatch(m[3], -1) {
			r.tests = append(r.tests, found[1])
		}
		out[section] = append(out[section], r)
	}
	return out
}

// below says whether field is prefix or part of it.
func below(field, prefix string) bool {
	rest, ok := strings.CutPrefix(field, prefix)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func TestEveryFieldHasARow(t *testing.T) {
	page := readPage(t)
	for kind := range kinds {
		if !slices.ContainsFunc(page["Kinds"], func(r row) bool { return r.name == kind }) {
			t.Errorf("kind %s has no row", kind)
		}
		fields := fieldsOf(kind)
		for _, field := range fields {
			if !slices.ContainsFunc(page[kind], func(r row) bool { return below(field, r.name) }) {
				t.Errorf("%s: field %s has no row", kind, field)
			}
		}
		for _, r := range page[kind] {
			if !slices.ContainsFunc(fields, func(field string) bool { return below(field, r.name) }) {
				t.Errorf("%s has no field %s", kind, r.name)
			}
		}
	}
}

// TestPhases holds the phases to the table of states: what a row of it can show works, everything else does not.
func TestPhases(t *testing.T) {
	shown := map[cdiv1.DataVolumePhase]bool{cdiv1.PhaseUnset: true, cdiv1.Unknown: true}
	for _, r := range state.Rows() {
		shown[r.Phase] = true
	}
	var have []string
	for _, r := range readPage(t)["Phases of a DataVolume"] {
		name := strings.Trim(r.name, `"`)
		have = append(have, name)
		if works := r.status == "works"; works != shown[cdiv1.DataVolumePhase(name)] {
			t.Errorf("phase %s: the page says %s, the table of states shows it: %v", r.name, r.status, !works)
		}
	}
	all := constantsOfTheAPI(t, "DataVolumePhase")
	slices.Sort(have)
	if !slices.Equal(all, have) {
		t.Errorf("phases of the API and of the page differ:\n%v\n%v", all, have)
	}
}

// constantsOfTheAPI are the values of the API's constants of a type: reflection does not know constants.
func constantsOfTheAPI(t *testing.T, typeName string) []string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", reflect.TypeFor[cdiv1.DataVolume]().PkgPath()).Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "types*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no API types in %s: %v", dir, err)
	}
	var out []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			kind, ok := spec.Type.(*ast.Ident)
			value, literal := spec.Values[0].(*ast.BasicLit)
			if ok && literal && kind.Name == typeName {
				text, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Error(err)
				}
				out = append(out, text)
			}
			return true
		})
	}
	if len(out) == 0 {
		t.Fatalf("the API has no constants of type %s", typeName)
	}
	slices.Sort(out)
	return out
}

func TestConditions(t *testing.T) {
	page := readPage(t)["Conditions"]
	for _, kind := range []string{"DataVolume", "StorageProfile", "DataSource", "DataImportCron", "ObjectTransfer"} {
		for _, condition := range constantsOfTheAPI(t, kind+"ConditionType") {
			name := kind + " " + condition
			if !slices.ContainsFunc(page, func(r row) bool { return r.name == name }) {
				t.Errorf("condition %s has no row", name)
			}
		}
	}
}

// TestEventReasons: a reason works if it is in the table of states, and only then.
func TestEventReasons(t *testing.T) {
	given := map[string]bool{}
	for _, r := range append(state.Rows(), state.Populations()...) {
		given[string(r.Reason)], given[string(r.Told)] = true, true
	}
	for _, r := range readPage(t)["Event reasons"] {
		if (r.status == "works") != given[r.name] {
			t.Errorf("event %s: the page says %s, the table of states has it: %v", r.name, r.status, given[r.name])
		}
	}
}

// TestWorksIsInTheSource finds every annotation, metric and sentence that works in what we ship.
func TestWorksIsInTheSource(t *testing.T) {
	source := shipped(t)
	page := readPage(t)
	for _, r := range page["Annotations and labels"] {
		name := r.name
		if !strings.Contains(name, "/") {
			name = "cdi.kubevirt.io/" + name
		}
		if r.status == "works" && !strings.Contains(source, name+`"`) && !strings.Contains(source, name+":") {
			t.Errorf("%s works, says the page, but nothing we ship names it", name)
		}
	}
	for _, r := range page["Metrics"] {
		if named := strings.Contains(source, `"`+r.name+`"`); named != (r.status == "works") {
			t.Errorf("metric %s: the page says %s, the source names it: %v", r.name, r.status, named)
		}
	}
	for _, r := range page["Sentences at admission"] {
		sentence, _, _ := strings.Cut(r.name, `"ReadOnlyMany"`) // the list of modes is put together
		sentence = strings.TrimPrefix(sentence, "%s")
		if r.status == "works" && !strings.Contains(source, sentence) {
			t.Errorf("%q works, says the page, but nothing we ship says it", r.name)
		}
	}
}

// TestSentencesAreTested: every sentence that works is expected by a test against the real API server.
func TestSentencesAreTested(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "test", "apiserver", "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no API server tests: %v", err)
	}
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	placeholder := regexp.MustCompile("%[sd]")
	for _, r := range readPage(t)["Sentences at admission"] {
		pattern := placeholder.ReplaceAllString(regexp.QuoteMeta(r.name), ".+")
		if r.status == "works" && !regexp.MustCompile(pattern).MatchString(tests.String()) {
			t.Errorf("no test in test/apiserver expects %q", r.name)
		}
	}
}

// TestRowsAreShown: what works or is refused is shown by a test on a real cluster or a real API server, and so is that a field
// without effect is accepted. The test is there, and its file names what the row is about.
func TestRowsAreShown(t *testing.T) {
	files := testFiles(t)
	for section, rows := range readPage(t) {
		_, kind := kinds[section]
		for _, r := range rows {
			accepted := kind && r.status == "not there" && strings.HasPrefix(r.name, "spec.")
			switch {
			case section == "Sentences at admission": // TestSentencesAreTested finds the sentences themselves
				continue
			case r.name == string(cdiv1.Unknown): // no situation leads to it, as the tests of internal/decide hold
				continue
			case len(r.tests) == 0 && (accepted || r.status != "not there"):
				t.Errorf("%s: %s: no test shows that it is %s", section, r.name, r.status)
			}
			named := len(r.tests) == 0
			for _, test := range r.tests {
				text, found := files[test]
				if !found {
					t.Errorf("%s: %s: there is no test %s in test/e2e or test/apiserver", section, r.name, test)
				}
				named = named || strings.Contains(text, strings.ToLower(subject(section, r.name)))
			}
			if !named {
				t.Errorf("%s: %s: the files of %v do not name %q", section, r.name, r.tests, subject(section, r.name))
			}
		}
	}
}

// subject is the word a test of a row cannot do without: the last part of a field's path, or the name; for all of an object it is the
// object's kind.
func subject(section, name string) string {
	name = strings.Trim(strings.TrimSuffix(name, "[]"), `"`)
	last := name[strings.LastIndexAny(name, ". ")+1:]
	if strings.HasPrefix(name, "spec") || strings.HasPrefix(name, "status") {
		if last == "spec" || last == "status" || last == "source" {
			return section
		}
		return last
	}
	if strings.ContainsAny(name, "/ ") || section == "Annotations and labels" {
		return last[strings.LastIndex(last, "/")+1:]
	}
	return name
}

// testFiles are the files, in lower case, of the tests that need a cluster or an API server, by the name of the test.
func testFiles(t *testing.T) map[string]string {
	t.Helper()
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	out := map[string]string{}
	for _, dir := range []string{"e2e/*", "apiserver"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "test", dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no tests in test/%s: %v", dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range name.FindAllSubmatch(text, -1) {
				out[string(found[1])] = strings.ToLower(string(text) + usedFixtures(t, string(text)))
			}
		}
	}
	return out
}

var (
	declaration = regexp.MustCompile(`(?ms)^(?:func (?:\([^)]*\) )?|var )([A-Z]\w*).*?\n[})]`)
	constant    = regexp.MustCompile(`(?m)^\t([A-Z]\w*) += .*$`)
)

// usedFixtures are the declarations of test/e2e/fixture that the text of a test file names.
func usedFixtures(t *testing.T, text string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "test", "e2e", "fixture", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	var used strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range slices.Concat(declaration.FindAllStringSubmatch(string(source), -1), constant.FindAllStringSubmatch(string(source), -1)) {
			if strings.Contains(text, "."+m[1]) {
				used.WriteString(m[0])
			}
		}
	}
	return used.String()
}

// shipped is all of our Go source and manifests in one string.
func shipped(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"api", "cmd", "config", "internal", "pkg"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			code := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
			if err != nil || d.IsDir() || !code && !strings.HasSuffix(path, ".yaml") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
