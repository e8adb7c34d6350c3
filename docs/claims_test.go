// Package docs holds what the pages here promise to the tests they name.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are those whose tables are claims: each line of a table with a column "test" names one.
var pages = []string{"security.md", "reliability.md"}

var (
	named  = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)((?:/[^`]+)?)`")
	stated = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
)

// tests returns the repository's tests, whatever tag they are behind, with the text of the directory each is in.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	found, texts := findTests(t)
	for name, dirs := range found {
		for dir := range dirs {
			out[name] = append(out[name], texts[dir])
		}
	}
	return out
}

// testDirs returns the directories that have a test of each name.
func testDirs(t *testing.T) map[string]map[string]bool {
	t.Helper()
	found, _ := findTests(t)
	return found
}

// findTests returns the directories of each test, and the text of each directory's tests.
func findTests(t *testing.T) (found map[string]map[string]bool, texts map[string]string) {
	t.Helper()
	texts, found = map[string]string{}, map[string]map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		texts[dir] += string(text)
		for _, m := range stated.FindAllStringSubmatch(string(text), -1) {
			if found[m[1]] == nil {
				found[m[1]] = map[string]bool{}
			}
			found[m[1]][dir] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, texts
}

// TestClaimsAreTested: every claim of the pages names a test, and every test they name exists, with its subtests.
func TestClaimsAreTested(t *testing.T) {
	known := tests(t)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		claims, inTable := 0, false
		for n, line := range strings.Split(string(text), "\n") {
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			switch {
			case !strings.HasPrefix(line, "|"):
				inTable = false
				continue
			case cells[len(cells)-1] == "test":
				inTable = true
				continue
			case strings.HasPrefix(line, "|---"), !inTable:
				continue
			}
			claims++
			if !named.MatchString(cells[len(cells)-1]) {
				t.Errorf("%s:%d: a claim that names no test: %s", page, n+1, cells[0])
			}
		}
		if claims == 0 {
			t.Errorf("%s has no table with a column \"test\"", page)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if len(known[m[1]]) == 0 {
				t.Errorf("%s names %s, which no test file has", page, m[1])
			} else if missing := subtest(known[m[1]], m[2]); missing != "" {
				t.Errorf("%s names %s%s; there is no subtest %q", page, m[1], m[2], missing)
			}
		}
	}
}

// subtest is the part of a subtest's name that none of the texts has as a string; "" if one has them all.
func subtest(texts []string, name string) string {
	missing := ""
	for _, text := range texts {
		missing = ""
		for part := range strings.SplitSeq(strings.TrimPrefix(name, "/"), "/") {
			if part != "" && !strings.Contains(text, `"`+part+`"`) {
				missing = part
			}
		}
		if missing == "" {
			return ""
		}
	}
	return missing
}
