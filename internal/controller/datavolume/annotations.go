package datavolume

// Annotations of volumes and claims that clients of cdi.kubevirt.io write or read. What is recorded on a claim is a
// fact that outlives its worker; nothing here is a command to some other part of the controller.
const (
	annImmediate    = "cdi.kubevirt.io/storage.bind.immediate.requested" // presence counts, not the value
	annAdopt        = "cdi.kubevirt.io/allowClaimAdoption"
	annPrePopulated = "cdi.kubevirt.io/storage.prePopulated"
	annPopulatedFor = "cdi.kubevirt.io/storage.populatedFor"
	annExternal     = "cdi.kubevirt.io/externalPopulation" // another populator fills the claim
	annRetain       = "cdi.kubevirt.io/storage.pod.retainAfterCompletion"

	annPodPhase    = "cdi.kubevirt.io/storage.pod.phase" // Succeeded: the data is complete
	annPodReady    = "cdi.kubevirt.io/storage.pod.ready"
	annRestarts    = "cdi.kubevirt.io/storage.pod.restarts"
	annFatal       = "cdi.kubevirt.io/storage.import.fatalError"
	annRunMessage  = "cdi.kubevirt.io/storage.condition.running.message" // the last error, once its pod is gone
	annContentType = "cdi.kubevirt.io/storage.contentType"
	annImportPod   = "cdi.kubevirt.io/storage.import.importPodName"
	annUploadPod   = "cdi.kubevirt.io/storage.uploadPodName"
	annPreallocate = "cdi.kubevirt.io/storage.preallocation"
	annCloneType   = "cdi.kubevirt.io/cloneType"
	annCloneWhy    = "cdi.kubevirt.io/cloneFallbackReason"
	annDiskSize    = "berth.dev/disk-size" // how large the disk on the claim is, in bytes
	annVolume      = "berth.dev/volume"    // the volume a worker in another namespace serves, namespace/name
)

// passedOn are the annotations of a volume that its worker pod gets too.
var passedOn = []string{
	"k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network", "sidecar.istio.io/inject", "linkerd.io/inject",
}
