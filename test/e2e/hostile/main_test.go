//go:build e2e

// Package hostile tests what a tenant with bad intentions tries.
package hostile

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
