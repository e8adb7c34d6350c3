//go:build e2e

// Package stream tests disks that are fetched as they are read: streams of container images, and machines that boot while their disk is imported.
package stream

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
