package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// alone are the end-to-end tests that nothing may run beside, by the directory of their package: those that do not call t.Parallel.
// They stop nodes, fill a pool, restart our programs, or measure.
type alone map[string][]string

func aloneTests() alone {
	out := alone{}
	files, _ := filepath.Glob("test/e2e/*/*_test.go") // the pattern is well-formed
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil || needsMore(file) {
			continue // the stage that compiles it reports what is wrong
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" && !callsParallel(f) {
				dir := "./" + filepath.Dir(path)
				out[dir] = append(out[dir], f.Name.Name)
			}
		}
	}
	return out
}

// needsMore reports whether a file is behind more tags than that of end-to-end tests.
func needsMore(file *ast.File) bool {
	for _, group := range file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:build") && strings.Contains(c.Text, "&&") {
				return true
			}
		}
	}
	return false
}

// callsParallel reports whether the test itself calls t.Parallel, not only a subtest of it.
func callsParallel(f *ast.FuncDecl) bool {
	return slices.ContainsFunc(f.Body.List, func(s ast.Stmt) bool {
		e, is := s.(*ast.ExprStmt)
		if !is {
			return false
		}
		call, is := e.X.(*ast.CallExpr)
		if !is {
			return false
		}
		sel, is := call.Fun.(*ast.SelectorExpr)
		return is && sel.Sel.Name == "Parallel"
	})
}

// pattern matches the names of these tests.
func (a alone) pattern() string {
	names := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(a))...)))
	return "^(" + strings.Join(names, "|") + ")$"
}

// packages are the directories of these tests. The tests of install take Berth away and come last.
func (a alone) packages() []string {
	dirs := slices.Sorted(maps.Keys(a))
	slices.SortStableFunc(dirs, func(x, y string) int { return last(x) - last(y) })
	return dirs
}

func last(dir string) int {
	if strings.HasSuffix(dir, "/install") {
		return 1
	}
	return 0
}
