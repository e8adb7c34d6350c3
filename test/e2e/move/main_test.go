//go:build e2e

// Package move tests moves of machines between nodes: live and stopped, drained nodes, and what fails meanwhile.
package move

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
