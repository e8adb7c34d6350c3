//go:build e2e

// Package populate tests claims that are filled by a populator, an annotation, a DataSource or a cron, and what CDI's clients expect of them.
package populate

import (
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }
