package main

import (
	"testing"

	"github.com/berth-vm/berth/internal/testing/dependencies"
)

// TestDependencies: the launcher does not know the Kubernetes API; its orders are files.
func TestDependencies(t *testing.T) {
	dependencies.Refuse(t, "k8s.io/client-go", "sigs.k8s.io/controller-runtime", dependencies.Berth+"cluster")
}
