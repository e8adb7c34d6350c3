// Package movestatus begins migrations and writes their status, for guests that run and for machines that do not.
package movestatus

import (
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/report"
)

// Reporter writes the status of migrations.
type Reporter struct {
	Cached  client.Reader
	Report  *report.Reporter
	Cluster *cluster.Writer
	Clock   clock.PassiveClock
}
