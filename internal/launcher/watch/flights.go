package watch

import (
	"encoding/json"
	"fmt"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/netdisk"
)

// pendingIO notices reads and writes that are not answered although their server accepts connections. The clients of iSCSI and Ceph wait without
// end, and report no error: for example, while a pool of Ceph is full.
type pendingIO struct {
	qemu *qmp.Monitor
	last map[string]string // the positions of a volume's queues at the last look
}

// inFlight begins the text about such a volume.
const inFlight = "reads or writes do not come back although its server answers"

// stuck returns the volumes that have had reads or writes in flight since the last look, none of which was answered. Only queues of virtio disks
// can be read.
func (f *pendingIO) stuck(disks map[string]*backing.Remote) map[string]string {
	out := map[string]string{}
	for volume, at := range disks {
		device := at.Device
		if device == "" {
			device = qmp.Device(volume)
		}
		waiting, how := f.queues(device)
		if waiting > 0 && f.last[volume] == how {
			out[volume] = inFlight + fmt.Sprintf(" (%d of them); %s", waiting, netdisk.Of(at.Protocol).Advice)
		}
		f.last[volume] = how
	}
	return out
}

// queues returns how many reads and writes a disk waits for, and the positions of its queues.
func (f *pendingIO) queues(device string) (waiting int, how string) {
	for i := range 64 {
		answer, err := f.qemu.Run("x-query-virtio-queue-status",
			map[string]any{"path": "/machine/peripheral/" + device + "/virtio-backend", "queue": i})
		var q struct {
			InUse int `json:"inuse"`
			Used  int `json:"used-idx"`
			Size  int `json:"vring-num"`
		}
		if err != nil || json.Unmarshal(answer, &q) != nil || q.Size == 0 {
			break
		}
		waiting += q.InUse
		how += fmt.Sprintf("%d ", q.Used)
	}
	return waiting, how
}
