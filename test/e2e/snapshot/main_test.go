//go:build e2e

// Package snapshot tests snapshots, restores and clones of machines, and machines whose claims are described with them.
package snapshot

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
