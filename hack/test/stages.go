package main

import (
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

// driver is the folder of the disk driver's module.
const driver = "driver"

// stages is the whole run. What tests a cluster waits for it a good deal of the time; what only computes runs beside it. The
// linter vets the module, so its other stages do not.
func stages() []stage {
	raced, plain := unitTests()
	return []stage{
		{name: "generate", lane: first, about: "generated files are what `make generate` makes", argv: []string{"make", "generate-check"}},
		{name: "lint", lane: beside, about: "golangci-lint over every module and every tag", argv: []string{"make", "lint"}},
		{name: "unit", lane: beside, about: "unit tests, nothing but Go", tests: true,
			argv: words("go test -vet=off -timeout 45m"), packages: plain},
		{name: "race", lane: beside, about: "unit tests of what does several things at once, with the race detector", tests: true,
			argv: words("go test -vet=off -race -timeout 45m"), packages: raced, env: []string{"CGO_ENABLED=1"}},
		{name: "driver", lane: beside, about: "unit tests of the disk driver, with the race detector", tests: true,
			dir: driver, argv: words("go test -vet=off -race -timeout 20m"), packages: words("./..."), env: []string{"CGO_ENABLED=1"}},
		{name: "kubebox", lane: beside, about: "unit tests of the test cluster's own program", tests: true,
			dir: "hack/kubebox", argv: words("go test"), packages: words("./internal/... ./boot")},
		{name: "release", lane: beside, about: "manifests, chart and programs of a release, pushed to a registry", tests: true,
			dir: "hack/release", argv: words("go test -timeout 30m"), packages: words(".")},
		{name: "argocd", lane: beside, about: "Argo CD's health scripts over everything that is said", tests: true,
			dir: "hack/argocd", argv: words("go test -timeout 10m"), packages: words(".")},
		{name: "fuzz", lane: beside, about: "every fuzz target for a few seconds", argv: words("make fuzz FUZZTIME=3s")},
		{name: "build", about: "the programs, and the test cluster's own", argv: []string{"make", "build", "bin/kubebox"}},
		{name: "images", about: "container images and the test guest", needs: "build", argv: []string{"make", "images"}},
		{name: "host", about: "tests that need root and Debian packages", tests: true, needs: "images", busy: true,
			argv: words("go test -vet=off -timeout 20m -tags " + tagHost), only: hostNames("."), packages: hostPackages(".")},
		{name: "driver-host", about: "the same of the disk driver", tests: true, needs: "images", busy: true, dir: driver,
			argv: words("go test -vet=off -timeout 20m -tags " + tagHost), only: hostNames(driver), packages: hostPackages(driver)},
		{name: "apiserver", about: "the real API server: CRDs, webhooks, server-side apply", tests: true, needs: "build", busy: true,
			argv: words("go test -vet=off -timeout 15m -tags " + tagAPIServer), packages: words("./test/apiserver/...")},
		{name: "cluster", about: "three nodes with Berth on them", needs: "images", argv: []string{"make", "up", "load", "install"}},
		{name: "e2e", about: "end-to-end tests on that cluster", needs: "cluster", tests: true, busy: true,
			argv: words("go test -vet=off -timeout 75m -p 1 -parallel 4 -tags " + tagE2E), packages: words("./test/e2e/..."),
			env: []string{"E2E_KUBECONFIG=.kubebox/kubeconfig"}},
	}
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

// hostNames is a pattern of the tests in such files alone: the others of their packages have a stage of their own.
func hostNames(module string) string {
	var names []string
	for _, path := range hostFiles(module) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return "." // whoever runs the tests is told what is wrong
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
		case d.IsDir() && path != module && (strings.HasPrefix(d.Name(), ".") || path == driver || path == "hack/kubebox"):
			return fs.SkipDir
		case strings.HasSuffix(path, hostTests):
			out = append(out, path)
		}
		return nil
	})
	return out
}
