//go:build e2e

// Package volume tests volumes, from a DataVolume to its end: sources, clones, failures, options and what the storage class decides.
package volume

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
