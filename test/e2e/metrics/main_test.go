//go:build e2e

// Package metrics tests what the programs show to Prometheus, the alerts and the dashboard.
package metrics

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
