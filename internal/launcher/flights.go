package launcher

import (
	"encoding/json"
	"fmt"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/netdisk"
)

// flights notices reads and writes that do not come back although their server takes connections. The clients of iSCSI and
// Ceph wait for ever, a client of Ceph's for example while the pool is full, and no error is ever said.
type flights struct {
	qemu *qmp.Monitor
	last map[string]string // by volume: how far its queues were
}

// inFlight begins what is said of such a volume.
const inFlight = "reads or writes do not come back although its server answers"

// stuck are the volumes that have had reads or writes in flight since the last look, and none that came back. Only disks on
// virtio can be asked.
func (f *flights) stuck(disks map[string]*backing.Remote) map[string]string {
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

// queues is how many reads and writes a disk waits for, and how far its queues have come.
func (f *flights) queues(device string) (waiting int, how string) {
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
