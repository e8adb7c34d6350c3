//go:build e2e

// Package virtctl tests what users do from outside: virtctl, the page, exports.
package virtctl

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
