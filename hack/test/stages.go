package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// What each kind of test is tagged with; CONTRIBUTING.md says what each needs.
const (
	tagHost      = "host"
	tagAPIServer = "apiserver"
	tagE2E       = "e2e"

	hostTests = "_" + tagHost + "_test.go"
)

// lessGC has compilers and tests use more memory and a tenth less of the processors. Tests of memory collect garbage themselves.
const lessGC = "GOGC=400"

// driver is the folder of the disk driver's module.
const driver = "driver"

// libraries are the folders of modules that others may import.
var libraries = []string{"pkg/claim", "pkg/inflate", "pkg/lzma"}

// stages is the whole run. What tests a cluster waits for it a good deal of the time; what only computes runs beside it. The
// linter vets the module, so its other stages do not.
func stages() []stage {
	raced, plain := unitTests()
	return slices.Concat([]stage{
		{name: "generate", lane: first, about: "generated files are what `make generate` makes", argv: []string{"make", "generate-check"}},
		{name: "debian", lane: beside, about: "the Debian guest, which a test boots", argv: words("go run ./hack/images debian")},
		{name: "lint", lane: beside, about: "golangci-lint over every module and every tag", argv: []string{"make", "lint"}},
		{name: "unit", lane: beside, about: "unit tests, nothing but Go", tests: true,
			argv: words("go test -vet=off -timeout 45m"), packages: plain, env: []string{lessGC}},
		{name: "race", lane: beside, about: "unit tests of what does several things at once, with the race detector", tests: true,
			argv: words("go test -vet=off -race -timeout 45m"), packages: raced, env: []string{"CGO_ENABLED=1", lessGC}},
		{name: "driver", lane: beside, about: "unit tests of the disk driver, with the race detector", tests: true,
			dir: driver, argv: words("go test -vet=off -race -timeout 20m"), packages: words("./..."), env: []string{"CGO_ENABLED=1"}},
	}, libraryStages(), []stage{
		{name: "bench", lane: beside, about: "unit tests of the measurements", tests: true, dir: "bench", argv: words("go test -vet=off"), packages: words("./...")},
		{name: "kubebox", lane: beside, about: "unit tests of the test cluster's own program", tests: true,
			dir: "hack/kubebox", argv: words("go test"), packages: words("./internal/... ./boot")},
		{name: "release", lane: beside, about: "manifests, chart and programs of a release, pushed to a registry", tests: true,
			dir: "hack/release", argv: words("go test -timeout 30m"), packages: words(".")},
		{name: "argocd", lane: beside, about: "Argo CD's health scripts over everything that is said", tests: true,
			dir: "hack/argocd", argv: words("go test -timeout 10m"), packages: words(".")},
		{name: "fuzz", lane: beside, about: "every fuzz target for a few seconds", argv: words("make fuzz FUZZTIME=1s")},
		{name: "build", about: "the programs, and the test cluster's own", argv: []string{"make", "build", "bin/kubebox"}},
		{name: "images", about: "container images and the test guest", needs: "build", argv: []string{"make", "images"}},
		{name: "host", about: "tests that need root and Debian packages", tests: true, needs: "images", busy: true,
			argv: words("go test -vet=off -timeout 20m -tags " + tagHost), only: hostNames("."), packages: hostPackages(".")},
		{name: "driver-host", about: "the same of the disk driver", tests: true, needs: "images", busy: true, dir: driver,
			argv: words("go test -vet=off -timeout 20m -tags " + tagHost), only: hostNames(driver), packages: hostPackages(driver)},
		{name: "apiserver", about: "the real API server: CRDs, webhooks, server-side apply", tests: true, needs: "build", busy: true,
			argv: words("go test -vet=off -timeout 15m -tags " + tagAPIServer), packages: words("./test/apiserver/...")},
		{name: "cluster", about: "three nodes with Berth on them", needs: "images", argv: []string{"make", "up", "load", "install"}},
	}, e2eStages())
}

// e2eStages are the tests on the cluster: those that run beside each other, then the others.
func e2eStages() []stage {
	alone, env := aloneTests(), []string{"E2E_KUBECONFIG=.kubebox/kubeconfig", lessGC}
	return []stage{
		{name: "e2e", about: "end-to-end tests on that cluster", needs: "cluster", tests: true, busy: true, turns: 6,
			argv:     append(words("go test -vet=off -timeout 75m -p 6 -parallel 4 -tags "+tagE2E), "-skip", alone.pattern()),
			packages: words("./test/e2e/..."), env: env},
		{name: "e2e-alone", about: "end-to-end tests that nothing may run beside", needs: "cluster", tests: true, busy: true,
			argv: words("go test -vet=off -timeout 45m -p 1 -tags " + tagE2E), only: alone.pattern(), packages: alone.packages(), env: env},
	}
}

// libraryStages test each library as its users import it: with the requirements of its own go.mod.
func libraryStages() []stage {
	var out []stage
	for _, dir := range libraries {
		out = append(out, stage{name: filepath.Base(dir), lane: beside, about: "unit tests of the library " + dir, tests: true,
			dir: dir, argv: words("go test -vet=off"), packages: words("./...")})
	}
	return out
}

// narrow lets the end-to-end stages run the tests of these areas alone.
func narrow(stages []stage, areas string) ([]stage, error) {
	if areas == "" {
		return stages, nil
	}
	var packages []string
	for area := range strings.SplitSeq(areas, ",") {
		if found, err := filepath.Glob(filepath.Join("test/e2e", area, "*_test.go")); err != nil || len(found) == 0 {
			return nil, fmt.Errorf("no tests in test/e2e/%s", area)
		}
		packages = append(packages, "./test/e2e/"+area)
	}
	alone := aloneTests().packages()
	var out []stage
	for _, s := range stages {
		switch s.name {
		case "e2e":
			s.packages = packages
		case "e2e-alone":
			s.packages = slices.DeleteFunc(alone, func(p string) bool { return !slices.Contains(packages, p) })
			if len(s.packages) == 0 {
				continue
			}
		}
		out = append(out, s)
	}
	return out, nil
}

func words(s string) []string { return strings.Fields(s) }

// hostPackages lists the directories of a module that have tests which need root, as package patterns.
func hostPackages(module string) []string {
	var out []string
	for _, path := range hostFiles(module) {
		if dir, err := filepath.Rel(module, filepath.Dir(path)); err == nil {
			out = append(out, "./"+dir)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// hostNames returns a pattern of the tests in such files alone: the others of their packages have a stage of their own.
func hostNames(module string) string {
	var names []string
	for _, path := range hostFiles(module) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return "." // the user of the tests sees what is wrong
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return "^(" + strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), "|") + ")$"
}

func hostFiles(module string) []string {
	var out []string
	_ = filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != module && (strings.HasPrefix(d.Name(), ".") || isModule(path)):
			return fs.SkipDir
		case strings.HasSuffix(path, hostTests):
			out = append(out, path)
		}
		return nil
	})
	return out
}
