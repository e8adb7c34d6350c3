// Package names has the annotations and labels that volumes, claims, workers and clients of cdi.kubevirt.io use, each spelled
// once. A record on a claim is a fact that outlives its worker; none of these keys is a command to another part of the controller.
//
// It has only the names. Their meaning is where they are used.
package names

// Annotations written by the author of a volume or a claim.
const (
	ExportFiles  = "berth.dev/export-files"                           // on a VirtualMachineExport: its claims have files, and no disks
	Immediate    = "cdi.kubevirt.io/storage.bind.immediate.requested" // presence counts, not the value
	Adopt        = "cdi.kubevirt.io/allowClaimAdoption"
	PrePopulated = "cdi.kubevirt.io/storage.prePopulated"
	CheckStatic  = "cdi.kubevirt.io/storage.checkStaticVolume" // keep the contents of a volume that is reserved for the claim
	Retain       = "cdi.kubevirt.io/storage.pod.retainAfterCompletion"
	// Contents says how to read the source's bytes. The value raw: as the disk itself, whatever they look like. Other values have no
	// effect.
	Contents    = "berth.dev/contents"
	ContentsRaw = "raw"
	// BootEarly with the value true: a machine may start with the disk while it is being imported.
	BootEarly = "berth.dev/boot-early"
)

// NoBackup as a label with the value true tells backup tools to leave an object out.
const NoBackup = "velero.io/exclude-from-backup"

// Drill is the label of everything that a restore drill makes. Its value is the name of the machine that the drill made, so that another machine
// which got the label by being copied is told apart. DrillOf is the annotation with the name of the machine that was backed up.
const (
	Drill   = "berth.dev/restore-drill"
	DrillOf = "berth.dev/restore-drill-of"
)

// ApplyProfile as a label of a claim asks admission to complete it by its class's profile, its size too.
const ApplyProfile = "cdi.kubevirt.io/applyStorageProfile"

// Annotations of a claim that say what is on it, and who may write to it.
const (
	// PodPhase is the state of the worker that fills the claim; Succeeded is the record that the data is complete.
	PodPhase = "cdi.kubevirt.io/storage.pod.phase"
	// PopulatedFor records that the data was written without a worker of the claim's own, and for which claim.
	PopulatedFor = "cdi.kubevirt.io/storage.populatedFor"
	// MayFill is the UID of the order that the claim was made empty for. As long as it is there, a worker of that order may
	// write to the claim; Filled takes its place in the same write that records that the data is complete.
	MayFill = "berth.dev/may-fill"
	// FilledBy is the digest of the spec of the DataVolume that filled the claim. A DataVolume of the claim's name with this spec gets the claim
	// back if both are restored from a backup, which leaves out who owns what.
	FilledBy = "berth.dev/filled-by"
	// Uploaded is the id of the upload that filled the claim, as the upload's URL has it: who sent it and lost the answer can ask whether it was theirs.
	Uploaded = "berth.dev/uploaded"
	// Filled is a value of MayFill: only the claim's users may write to it from now on.
	Filled = "filled"
	// KeptFrom says that the claim was made for the guest's own copy of a volume: UID of the instance, a slash, name of the volume.
	KeptFrom = "berth.dev/kept-from"
	// DiskSize is the size in bytes of the disk on the claim, as measured when it was filled.
	DiskSize    = "berth.dev/disk-size"
	VolumeList  = "cdi.kubevirt.io/storage.persistentVolumeList" // the volumes that were reserved for the claim when it was made
	External    = "cdi.kubevirt.io/externalPopulation"           // another populator fills the claim
	ContentType = "cdi.kubevirt.io/storage.contentType"
)

// Populators with the value true on a StorageClass: its provisioner leaves claims alone whose source it does not know, as CSI drivers do, although
// there is no CSIDriver of its name.
const Populators = "berth.dev/populators"

// SourceNamespace is the namespace of the object that a claim's dataSourceRef names, of a claim that is filled by us. It takes the place of
// dataSourceRef.namespace: an API server without the gate CrossNamespaceVolumeDataSource drops a reference with that field.
const SourceNamespace = "berth.dev/source-namespace"

// Access to golden images by labels of namespaces.
const (
	// ImageLibrary with the value true on a namespace: its DataSources and VolumeCloneSources may be used by namespaces that have the label UsesImages of it.
	ImageLibrary = "berth.dev/image-library"
	// UsesImages, with the name of a library's namespace after it, is the label of a namespace that may use the library's images. Its value is Allowed.
	UsesImages = "images.berth.dev/"
	Allowed    = "allowed"
)

// RegistryMirrors on the CDI resource says where images are read from instead of where they are named: "PREFIX=PREFIX", separated by commas. The CDIConfig
// shows it.
const RegistryMirrors = "berth.dev/registry-mirrors"

// Annotations of a claim that say how its filling goes.
const (
	PodReady    = "cdi.kubevirt.io/storage.pod.ready"
	Restarts    = "cdi.kubevirt.io/storage.pod.restarts"
	Fatal       = "cdi.kubevirt.io/storage.import.fatalError"
	RunMessage  = "cdi.kubevirt.io/storage.condition.running.message" // the last error, once its pod is gone
	RunReason   = "cdi.kubevirt.io/storage.condition.running.reason"  // of a transfer that was given up: what kind of error it was
	ImportPod   = "cdi.kubevirt.io/storage.import.importPodName"
	UploadPod   = "cdi.kubevirt.io/storage.uploadPodName"
	Preallocate = "cdi.kubevirt.io/storage.preallocation"
	// ServedOn is the node where the worker serves the claim's disk while it fills it: a machine may start there.
	ServedOn = "berth.dev/served-on"
)

// Annotations of a claim that is imported in stages.
const (
	// CheckpointCurrent is the checkpoint that the disk is at, and CheckpointPrevious the one before. On a worker: the one that it brings.
	CheckpointCurrent  = "cdi.kubevirt.io/storage.checkpoint.current"
	CheckpointPrevious = "cdi.kubevirt.io/storage.checkpoint.previous"
	// CheckpointCopied, with a checkpoint after it, records that its stage is complete. The value is the UID of the worker that brought it.
	CheckpointCopied = "cdi.kubevirt.io/storage.checkpoint.copied."
	// CheckpointDone takes the place of them all when the last stage is complete.
	CheckpointDone = "cdi.kubevirt.io/storage.checkpoint.done"
)

// Annotations of a claim that say how it is cloned.
const (
	CloneType = "cdi.kubevirt.io/cloneType"
	CloneBack = "cdi.kubevirt.io/cloneFallbackReason" // only where it is one
	CloneWay  = "berth.dev/clone"                     // as CloneType, and "stream" where it is one
	CloneWhy  = "berth.dev/clone-reason"              // why in this way
	CloneSize = "berth.dev/clone-size"                // CloneSizeKept or CloneSizeSmall, where it is so
)

// CloneSizeSmall says that the claim was made although its source does not fit in it.
const CloneSizeSmall = "small"

// CloneSizeKept says that the clone's disk is as large as its source's, for the claim asks for no more room than the source's claim did.
const CloneSizeKept = "kept"

// Serves is an annotation of a worker in another namespace: the namespace/name of the object it works for.
const Serves = "berth.dev/serves"

// Annotations of a claim that is filled by way of another one.
const (
	Prime = "cdi.kubevirt.io/storage.populator.pvcPrime" // the one that is filled in its stead
	State = "berth.dev/state"                            // of a claim that is filled without a DataVolume: the reason its state has
)

// What Kubernetes writes on volumes and claims.
const (
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
	AskedOf       = "volume.kubernetes.io/storage-provisioner"
	SelectedNode  = "volume.kubernetes.io/selected-node"   // where a claim that is not bound yet will be used, as the scheduler chose
	BoundByKube   = "pv.kubernetes.io/bound-by-controller" // the claim did not name a volume, and no volume named the claim
)

// PassedOn are the annotations of a volume that its worker pod gets too.
var PassedOn = []string{
	"k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network", "sidecar.istio.io/inject", "linkerd.io/inject",
}

// RestoreFinalizer keeps a VirtualMachineRestore that has made volumes until they have their names or are gone. A restore that is
// deleted continues until then, and its machine waits.
const RestoreFinalizer = "snapshot.kubevirt.io/vmrestore-protection"
