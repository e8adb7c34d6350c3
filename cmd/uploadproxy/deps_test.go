package main

import (
	"testing"

	"github.com/berth-vm/berth/internal/testing/dependencies"
)

// TestDependencies: the proxy hands bytes on; it does not look into them, and decides nothing.
func TestDependencies(t *testing.T) {
	dependencies.Refuse(t, dependencies.Berth+"transfer/format", dependencies.Berth+"transfer/decode", dependencies.Berth+"transfer/sink", dependencies.Berth+"controller", dependencies.Berth+"decide")
}
