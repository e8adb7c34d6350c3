// Package grant gives the disks of a machine to a pod: it enters the pod among the holders of the disks and copies the logins that it needs.
package grant

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
)

// Grants gives disks to pods.
type Grants struct {
	Live    client.Reader
	Cluster *cluster.Writer
	Records *diskaccess.Records
}
