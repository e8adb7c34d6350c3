package instance

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/controller/observed"
)

// sourceAgain is how often to look at a snapshot that a claim is made of: the snapshot API is an add-on that may not be there to watch.
const sourceAgain = 5 * time.Second

// awaitsSource returns when to look again, if a claim waits for what it is made of; 0: none does.
func awaitsSource(s *observed.Instance) time.Duration {
	if slices.ContainsFunc(s.Disks, func(d diskstate.Disk) bool { return d.Unready }) {
		return sourceAgain
	}
	return 0
}

// keepBeside keeps a pod of the machine to the nodes where its claims can be made.
func keepBeside(s *observed.Instance, pod *corev1.Pod) {
	for _, d := range s.Disks {
		pod.Spec.Affinity = nodeselect.Within(pod.Spec.Affinity, d.Beside)
	}
}
