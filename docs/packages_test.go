package docs

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	arrows  = regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\|([a-z/, ]*)\\| .+ \\|$")
	support = regexp.MustCompile(`^internal/testing/|/gen$`)
)

const module = "github.com/berth-vm/berth/"

// box is the row of the page that a package belongs to: the longest name that it begins with.
func box(rows map[string][]string, pkg string) string {
	best := ""
	for name := range rows {
		if (pkg == name || strings.HasPrefix(pkg, name+"/")) && len(name) > len(best) {
			best = name
		}
	}
	return best
}

// listed has a line for each package of a module, with those that it imports.
func listed(t *testing.T, dir string, packages ...string) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}"}, packages...)...)
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestArrows: the packages import what the page says they may, and every arrow of the page is used.
func TestArrows(t *testing.T) {
	page, err := os.ReadFile("packages.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, m := range arrows.FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = nil
		for to := range strings.SplitSeq(m[2], ",") {
			if to = strings.TrimSpace(to); to == "api" || to == "pkg" {
				rows[m[1]] = append(rows[m[1]], to)
			} else if to != "" {
				rows[m[1]] = append(rows[m[1]], "internal/"+to)
			}
		}
	}
	imports := listed(t, "..", "./internal/...", module+"pkg/...", "./api/...", "./cmd/...") + listed(t, "../driver", "./...")
	used := map[string]bool{}
	for line := range strings.Lines(strings.ReplaceAll(imports, module, "@")) {
		words := strings.Fields(line)
		pkg := strings.TrimPrefix(words[0], "@")
		if support.MatchString(pkg) {
			continue
		}
		from := box(rows, pkg)
		if from == "" {
			t.Errorf("%s has no row in packages.md", pkg)
			continue
		}
		for _, imported := range words[1:] {
			path, ours := strings.CutPrefix(imported, "@")
			if !ours || strings.HasPrefix(path, "config/") {
				continue
			}
			to := box(rows, path)
			used[from+" "+to] = true
			if from != to && !slices.Contains(rows[from], to) {
				t.Errorf("%s imports %s: packages.md has no arrow from %s to %s", pkg, path, from, to)
			}
		}
	}
	for from, all := range rows {
		for _, to := range all {
			if !used[from+" "+to] {
				t.Errorf("packages.md has an arrow from %s to %s that nobody uses", from, to)
			}
		}
	}
}
