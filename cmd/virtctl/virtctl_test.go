package main

import (
	"flag"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-vm/berth/internal/testing/dependencies"
)

var update = flag.Bool("update", false, "rewrite the scripts' expected output and the reference page")

// TestMain makes this test binary the virtctl of the scripts, and the kubectl plugin.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"virtctl": main, "kubectl-virt": main})
}

// TestScripts are the command lines that need no cluster; test/apiserver has those that need an API server, and
// test/e2e those that need nodes.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *update,
	})
}

func TestDisplayName(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/local/bin/virtctl": "virtctl", "./kubectl-virt": "kubectl virt", "kubectl-virt.exe": "kubectl virt",
		"kubectl-my_virt": "kubectl my-virt", "/tmp/renamed": "virtctl",
	} {
		if got := displayName(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

// TestDependencies: the tool of users has no controller in it, nor anything a cluster's pods run.
func TestDependencies(t *testing.T) {
	dependencies.Refuse(t, dependencies.Berth+"cluster", dependencies.Berth+"controller", dependencies.Berth+"decide", "sigs.k8s.io/controller-runtime")
}
