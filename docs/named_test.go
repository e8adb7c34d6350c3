package docs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	target   = regexp.MustCompile("(?m)(?:`|^\\s*(?:\\$ )?)make ([a-z][a-z0-9-]*)")
	declared = regexp.MustCompile(`(?m)^([a-z0-9$()/ -]+):`)
	inTree   = regexp.MustCompile("`((?:api|bench|cmd|config|docs|examples|hack|images|internal|pkg|test)/[A-Za-z0-9_./-]+)`")
	code     = regexp.MustCompile("(?s)```.*?```")
	// placed is a list of tests with the directory that they are in: "`TestA`, `TestB` in `internal/a`".
	placed = regexp.MustCompile("((?:`(?:Test|Fuzz)[A-Za-z0-9_]+(?:/[^`]+)?`(?:, and |, | and | or )?)+) \\(?(?:in|of) `([a-z][a-zA-Z0-9_./-]*)`")
)

// texts are the repository's pages by their path.
func texts(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		out[path] = string(text)
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("%d pages: %v", len(out), err)
	}
	return out
}

// anchor returns the anchor that links to a heading use.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// TestLinksLead: every link from one page to another, or to a heading, leads there.
func TestLinksLead(t *testing.T) {
	pages := texts(t)
	for path, text := range pages {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			file, to, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
				continue
			}
			at := path
			if file != "" {
				at = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(at); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, m[1])
				continue
			}
			if to == "" || !strings.HasSuffix(at, ".md") {
				continue
			}
			found := false
			for _, h := range heading.FindAllStringSubmatch(pages[at], -1) {
				found = found || anchor(h[1]) == to
			}
			if !found {
				t.Errorf("%s links to %s: %s has no such heading", path, m[1], at)
			}
		}
	}
}

// TestWhatIsNamedExists: tests, files and make targets that a page names are there.
func TestWhatIsNamedExists(t *testing.T) {
	known := tests(t)
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range declared.FindAllStringSubmatch(string(makefile), -1) {
		for name := range strings.FieldsSeq(m[1]) {
			targets[name] = true
		}
	}
	for path, text := range texts(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if len(known[m[1]]) == 0 {
				t.Errorf("%s names %s, which no test file has", path, m[1])
			}
		}
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !targets[m[1]] {
				t.Errorf("%s names make %s, which the Makefile does not have", path, m[1])
			}
		}
		for _, m := range inTree.FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join("..", m[1]))
			if _, beside := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil && beside != nil {
				t.Errorf("%s names the file %s, which does not exist", path, m[1])
			}
		}
	}
}

// TestWhereTestsAre: a test is in the directory that a page names for it.
func TestWhereTestsAre(t *testing.T) {
	at := testDirs(t)
	checked := 0
	for path, text := range texts(t) {
		if strings.HasPrefix(path, "../docs/decisions/") {
			continue // records describe the tree of their day
		}
		for _, m := range placed.FindAllStringSubmatch(text, -1) {
			for _, test := range named.FindAllStringSubmatch(m[1], -1) {
				checked++
				if dir := filepath.Join("..", m[2]); !at[test[1]][dir] {
					t.Errorf("%s says that %s is in %s; it is in %v", path, test[1], m[2], slices.Sorted(maps.Keys(at[test[1]])))
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("checked only %d tests", checked)
	}
}
