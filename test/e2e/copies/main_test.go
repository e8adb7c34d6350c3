//go:build e2e

// Package copies tests disks that begin as a copy of a master, and where the copies are kept.
package copies

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
