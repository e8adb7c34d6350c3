package render

import kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"

// Present is the name of the pod that an instance's guest is in, as its status says: a guest that has moved is in the pod that it moved
// to. Whoever uses it sees to it that the pod belongs to the instance.
func Present(i *kubevirt.VirtualMachineInstance) string {
	switch s := i.Status.MigrationState; {
	case s != nil && s.Completed && !s.Failed && s.TargetPod != "":
		return s.TargetPod
	case s != nil && s.SourcePod != "":
		return s.SourcePod
	}
	return Machine{Instance: i}.PodName(Launcher)
}
