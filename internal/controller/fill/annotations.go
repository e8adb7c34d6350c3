package fill

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	from "github.com/berth-vm/berth/internal/origin"
)

// Annotations of volumes and claims that clients of cdi.kubevirt.io write or read. What is recorded on a claim is a
// fact that outlives its worker; nothing here is a command to some other part of the controller.
const (
	AnnImmediate    = "cdi.kubevirt.io/storage.bind.immediate.requested" // presence counts, not the value
	annAdopt        = "cdi.kubevirt.io/allowClaimAdoption"
	annPrePopulated = "cdi.kubevirt.io/storage.prePopulated"
	annCheckStatic  = "cdi.kubevirt.io/storage.checkStaticVolume" // keep the contents of a volume that is reserved for the claim
	AnnPopulatedFor = from.AnnPopulatedFor
	annExternal     = "cdi.kubevirt.io/externalPopulation" // another populator fills the claim
	AnnRetain       = "cdi.kubevirt.io/storage.pod.retainAfterCompletion"

	AnnPodPhase    = from.AnnPodPhase
	AnnPodReady    = "cdi.kubevirt.io/storage.pod.ready"
	annRestarts    = "cdi.kubevirt.io/storage.pod.restarts"
	annFatal       = "cdi.kubevirt.io/storage.import.fatalError"
	annRunMessage  = "cdi.kubevirt.io/storage.condition.running.message" // the last error, once its pod is gone
	annRunReason   = "cdi.kubevirt.io/storage.condition.running.reason"  // of a transfer that was given up: what kind of error it was
	annContentType = "cdi.kubevirt.io/storage.contentType"
	annImportPod   = "cdi.kubevirt.io/storage.import.importPodName"
	annUploadPod   = "cdi.kubevirt.io/storage.uploadPodName"
	annPreallocate = "cdi.kubevirt.io/storage.preallocation"
	AnnCloneType   = "cdi.kubevirt.io/cloneType"
	annCloneBack   = "cdi.kubevirt.io/cloneFallbackReason" // only where it is one
	annCloneWay    = "berth.dev/clone"                     // as AnnCloneType, and "stream" where it is one
	annCloneWhy    = "berth.dev/clone-reason"              // why in this way
	annDiskSize    = from.AnnDiskSize
)

// AnnContents on a volume (or on a claim that names a source) says what the source's bytes are. The value raw: the disk itself,
// whatever they look like. Any other value says nothing.
const (
	AnnContents = "berth.dev/contents"
	contentsRaw = "raw"
)

// AnnServes on a worker in another namespace names whom it works for, namespace/name.
const AnnServes = "berth.dev/volume"

// Served is whom a server in another namespace works for, for controllers that have it brought back by its pod.
func Served(_ context.Context, obj client.Object) []reconcile.Request {
	namespace, name, ok := strings.Cut(obj.GetAnnotations()[AnnServes], "/")
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// PassedOn are the annotations of a volume that its worker pod gets too.
var PassedOn = []string{
	"k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network", "sidecar.istio.io/inject", "linkerd.io/inject",
}

// labelApplyProfile on a claim asks admission to complete it by its class's profile, its size too.
const labelApplyProfile = "cdi.kubevirt.io/applyStorageProfile"
