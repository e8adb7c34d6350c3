package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// unitTests lists the packages that have unit tests, in two parts. In those that do several things at once, in their code or in their
// tests, the race detector looks on; in the others it has nothing to find and would make their tests ten times as long.
func unitTests() (raced, plain []string) {
	tested, concurrent := map[string]bool{}, map[string]bool{}
	_ = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || isModule(path)), d.IsDir() && slices.Contains(elsewhere, path):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, hostTests):
			return nil
		}
		dir := "./" + filepath.Dir(path)
		tested[dir] = tested[dir] || strings.HasSuffix(path, "_test.go")
		concurrent[dir] = concurrent[dir] || isConcurrent(path)
		return nil
	})
	for dir, is := range tested {
		switch {
		case is && concurrent[dir]:
			raced = append(raced, dir)
		case is:
			plain = append(plain, dir)
		}
	}
	slices.Sort(raced)
	slices.Sort(plain)
	return raced, plain
}

// isModule: a folder has a go.mod of its own, so its tests have a stage of their own.
func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// elsewhere are directories of tests that other stages run, and of what was built.
var elsewhere = []string{"test/e2e", "test/apiserver", "test/beside", "test/takeover", "bin"}

func isConcurrent(path string) bool {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return true // the user of the tests sees what is wrong
	}
	found := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
		return i.Path.Value == `"net/http/httptest"` || i.Path.Value == `"golang.org/x/sync/errgroup"`
	})
	ast.Inspect(file, func(n ast.Node) bool {
		_, is := n.(*ast.GoStmt)
		found = found || is
		return !found
	})
	return found
}
