// Package diskstate reads the state of one disk of a machine: whether its claim has a volume and all of its data, how the disk is opened, who
// else has it, and how large it may become. Each answer is a field of Disk.
//
// It writes nothing. It knows an instance and its pods (Run), and nothing about other disks but those that it is given.
package diskstate

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/controller/diskaccess"
)

// Reader reads the state of disks.
type Reader struct {
	Cached  client.Reader
	Live    client.Reader // the server itself, for what the cache may not know yet
	Data    bool          // the cluster has the data side's kinds
	Records *diskaccess.Records
}
