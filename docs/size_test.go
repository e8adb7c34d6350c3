package docs

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mostMethods is how many methods a type of a controller may have. A reconciler with more does several jobs, which are controllers of
// their own.
const mostMethods = 34

// mostLines is how many lines of code a package below internal may have, without comments, blank lines, tests and generated files.
const mostLines = 1800

// TestControllersAreSmall: no type of a controller has more methods than a reader can keep in mind.
func TestControllersAreSmall(t *testing.T) {
	counted := map[string]int{}
	if err := countMethods("../internal/controller", counted); err != nil {
		t.Fatal(err)
	}
	if counted["../internal/controller/instance.Reconciler"] == 0 {
		t.Fatal("no methods were counted")
	}
	for name, n := range counted {
		if n > mostMethods {
			t.Errorf("%s has %d methods, more than %d", strings.TrimPrefix(name, "../"), n, mostMethods)
		}
	}
}

// TestPackagesAreSmall: no package has more code than a reader can keep in mind.
func TestPackagesAreSmall(t *testing.T) {
	counted := map[string]int{}
	if err := countLines("../internal", counted); err != nil {
		t.Fatal(err)
	}
	if counted["internal/controller/instance"] == 0 {
		t.Fatal("no lines were counted")
	}
	for name, n := range counted {
		if n > mostLines {
			t.Errorf("%s has %d lines of code, more than %d: divide it", name, n, mostLines)
		}
	}
}

// countLines counts the lines of code of each package below a directory, by the package's path in the repository.
func countLines(dir string, counted map[string]int) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "third_party"):
			return fs.SkipDir
		case entry.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || bytes.Contains(text[:min(len(text), 300)], []byte("DO NOT EDIT")) {
			return err
		}
		lines := map[int]bool{}
		files := token.NewFileSet()
		file := files.AddFile(path, -1, len(text))
		var s scanner.Scanner
		s.Init(file, text, nil, 0)
		for {
			pos, tok, lit := s.Scan()
			if tok == token.EOF {
				break
			}
			if tok == token.SEMICOLON && lit == "\n" {
				continue // the scanner's own
			}
			first := file.Line(pos)
			for n := range strings.Count(lit, "\n") + 1 {
				lines[first+n] = true
			}
		}
		counted[strings.TrimPrefix(filepath.Dir(path), "../")] += len(lines)
		return nil
	})
}

// countMethods counts the methods of each type in a directory.
func countMethods(dir string, counted map[string]int) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				of := f.Recv.List[0].Type
				if p, ok := of.(*ast.StarExpr); ok {
					of = p.X
				}
				if name, ok := of.(*ast.Ident); ok {
					counted[filepath.Dir(path)+"."+name.Name]++
				}
			}
		}
		return nil
	})
}
