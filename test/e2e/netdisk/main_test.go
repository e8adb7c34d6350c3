//go:build e2e

// Package netdisk tests disks at network servers, and volumes that a container makes.
package netdisk

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
