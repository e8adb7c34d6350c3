// Package handover records that the data of a machine is in another place: which volumes have the data of which claims, and that a
// guest has moved to another launcher. A record is written before the object that it replaces is deleted.
package handover

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
)

// Recorder records where data and guests are.
type Recorder struct {
	Cached  client.Reader
	Live    client.Reader
	Cluster *cluster.Writer
}
