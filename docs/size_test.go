package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// mostMethods is how many methods a type of a controller of the machine side may have. A reconciler with more does several jobs, which are
// controllers of their own.
const mostMethods = 34

// machineSide are the controllers of the machine side and what they share.
var machineSide = []string{"attempts", "compose", "diskrelease", "diskstate", "evacuation", "grant", "handover", "hotplug", "instance", "keep", "machine",
	"migration", "movestatus", "observed", "offlinemove", "report", "vm", "volumeupdate"}

// TestControllersAreSmall: no type of a controller of the machine side has more methods than a reader can keep in mind.
func TestControllersAreSmall(t *testing.T) {
	counted := map[string]int{}
	for _, name := range machineSide {
		if err := countMethods("../internal/controller/"+name, counted); err != nil {
			t.Fatal(err)
		}
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
