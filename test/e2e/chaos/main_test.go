//go:build e2e

// Package chaos tests a long run of random work during random faults.
package chaos

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
