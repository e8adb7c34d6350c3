//go:build e2e

// Package machine tests the life of virtual machines: start, stop, crash, hotplug, placement, images as machines.
package machine

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
