package main

import (
	"testing"

	"github.com/berth-vm/berth/internal/testing/dependencies"
)

// TestDependencies: the API writes requests down; it neither carries them out nor moves bytes.
func TestDependencies(t *testing.T) {
	dependencies.Refuse(t, dependencies.Berth+"transfer", dependencies.Berth+"controller", dependencies.Berth+"decide")
}
