package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatHarmsOthersRunsAlone: a test that stops or kills a part of the cluster would end what other tests read there.
func TestWhatHarmsOthersRunsAlone(t *testing.T) {
	files, err := filepath.Glob("../../test/e2e/*/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	seen := false
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || !strings.HasPrefix(f.Name.Name, "Test") || !harms(f) {
				continue
			}
			if seen = true; callsParallel(f) {
				t.Errorf("%s in %s stops a part of the cluster beside other tests", f.Name.Name, path)
			}
		}
	}
	if !seen {
		t.Error("no test stops a part of the cluster: this one looks for the wrong calls")
	}
}

// harms reports whether a function itself stops a part of the cluster.
func harms(f *ast.FuncDecl) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is || len(call.Args) < 2 {
			return true
		}
		if sel, is := call.Fun.(*ast.SelectorExpr); is && sel.Sel.Name == "Kubebox" {
			if what, is := call.Args[1].(*ast.BasicLit); is && (what.Value == `"kill"` || what.Value == `"node"`) {
				found = true
			}
		}
		return true
	})
	return found
}
