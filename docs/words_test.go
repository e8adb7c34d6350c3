package docs

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// stiff are phrases that readers stumbled over, each with what to write instead. They were all over the tree and are gone; a phrase
// is added here when its last use is.
var stiff = map[string]string{
	`anew`:                        `"again"`,
	`whoever`:                     `the noun: "the user who", "the client that", "the caller"`,
	`bears`:                       `"has"`,
	`go(es|ne)? on with (it|the)`: `"continues"`,
	`nobody says`:                 `"is unknown", or "is not set"`,
	`of which nobody`:             `"whose ... is unknown"`,
	`sees? to it that`:            `"ensures that"`,
	`whom the order`:              `"the order's owner"`,
	`is gone on with`:             `"is continued"`,
	`says of \w+ whether`:         `"reports whether"`,
	`somebody`:                    `the role: "a user", "another program", "a client"`,
	`heard of`:                    `"has", "knows": "the cache does not have it yet"`,
	`(is|are) who`:                `"is the user that", "names the user that"`,
	`for good`:                    `"permanently"`,
	`(came|comes) of (it|this)`:   `"the result of"`,
	`becomes of`:                  `"happens to", "the state of"`,
	`lets? go of`:                 `"releases", "closes"`,
	`gone on with`:                `"continued"`,
}

// rebuilt are folders whose code is being moved; they are looked at when it has its place.
var rebuilt = []string{"internal/controller/machine", "internal/disk", "internal/machine"}

// prose returns the text of a file that people read, by line: the comments of a Go file, all of a page.
func prose(t *testing.T, path string) map[int]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]string{}
	if !strings.HasSuffix(path, ".go") {
		for n, line := range strings.Split(string(text), "\n") {
			out[n+1] = line
		}
		return out
	}
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return out
		}
		if tok == token.COMMENT {
			out[file.Line(pos)] = lit
		}
	}
}

// TestPlainWords: no comment and no page has a phrase of the list. Decisions and results of benches are records of their day and stay.
func TestPlainWords(t *testing.T) {
	phrases := map[*regexp.Regexp]string{}
	for phrase, instead := range stiff {
		phrases[regexp.MustCompile(`(?i)\b`+phrase+`\b`)] = instead
	}
	looked := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch name := entry.Name(); {
			case name != ".." && strings.HasPrefix(name, "."), name == "third_party", name == "testdata", name == "bin", name == "dist",
				slices.Contains(rebuilt, strings.TrimPrefix(path, "../")), path == "../docs/decisions", path == "../bench":
				return fs.SkipDir
			}
			return nil
		}
		if path == "../docs/words_test.go" || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".md") {
			return nil
		}
		looked++
		for n, line := range prose(t, path) {
			for phrase, instead := range phrases {
				if found := phrase.FindString(line); found != "" {
					t.Errorf("%s:%d: %q: write %s", path, n, found, instead)
				}
			}
		}
		return nil
	})
	if err != nil || looked < 500 {
		t.Fatalf("looked at %d files: %v", looked, err)
	}
}
