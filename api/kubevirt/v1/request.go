package v1

import "k8s.io/apimachinery/pkg/types"

// What is asked of a machine between two changes of its spec. The aggregated API writes these requests into the machine's
// status and the machine controller takes them out again when they are carried out, so that a request is neither lost
// nor carried out twice.
//
// Start, stop and restart go to status.stateChangeRequests, oldest first:
//
//	start    [{action: Start}]
//	         [{action: Start, data: {paused: "true"}}] if its guest is to stand still until it is unpaused
//	stop     [{action: Stop, uid: UID of the instance}]
//	restart  [{action: Stop, uid: UID of the instance}, {action: Start}]
//
// A stop whose uid is not the present instance's is dropped. Requests are for the strategies Manual, RerunOnFailure and
// Once, and restart for Always too; a machine of strategy Always is stopped by setting spec.runStrategy to Halted, and a
// Halted one started by setting it to Always, since the strategy would undo anything else; only if it is to start paused is a
// start asked of a Halted one, and the controller changes the strategy. A grace period other than the
// machine's own is patched into the instance's spec.terminationGracePeriodSeconds first; the guest is given that time.
//
// A volume that is to stay with the machine goes to status.volumeRequests, which is carried out on the machine's template
// and on its instance if it has one. A volume for this run only is patched into the instance itself: spec.volumes (with
// hotpluggable: true) and spec.domain.devices.disks, under one name, or taken out of both.
//
// To pause and unpause a guest the aggregated API asks its launcher itself. It writes on the instance, as the annotation
// AnnPaused, that it is about to, and then the result. While it is there, the machine controller asks the launcher what is true
// and says it.
//
// A client that adds a request uses a JSON patch that tests the metadata.resourceVersion it read, and tries again on a conflict.

// DataPaused and DataTrue are the key and value that make a start leave the guest paused until a user resumes it.
const (
	DataPaused = "paused"
	DataTrue   = "true"
)

// Paused reports whether the request asks for a guest that is paused from its start.
func (q StateChangeRequest) Paused() bool { return q.Data[DataPaused] == DataTrue }

// AnnPaused is on an instance that a user has ever asked to pause, and says what was asked and whether it was done.
const (
	AnnPaused = "berth.dev/paused"
	// AnnGeneration is the generation of the machine's spec that the instance was made from, or has followed since.
	AnnGeneration = "kubevirt.io/vm-generation"
	// AnnTemplateVolumes are the names of the instance's volumes that are in the machine's template, as a JSON list. Volumes that were added to the
	// instance alone are not among them.
	AnnTemplateVolumes = "berth.dev/template-volumes"
	Pausing            = "pausing" // its launcher is being asked to
	PausedTrue         = "true"
	Unpausing          = "unpausing"
	PausedFalse        = "false"
)

// VolumeRequest is a volume that is to be added to a machine or removed from it. One of the two is set.
type VolumeRequest struct {
	AddVolumeOptions    *AddVolumeOptions    `json:"addVolumeOptions,omitempty"`
	RemoveVolumeOptions *RemoveVolumeOptions `json:"removeVolumeOptions,omitempty"`
}

// AddVolumeOptions is a volume and the drive it is to be in.
type AddVolumeOptions struct {
	// Name of the volume and of the disk, whatever the disk says itself.
	Name         string               `json:"name"`
	Disk         *Disk                `json:"disk"`
	VolumeSource *HotplugVolumeSource `json:"volumeSource"`
	// AccessMode is the AccessMode of Volume.
	// +kubebuilder:validation:Enum=write-exclusive;write-shared;read-shared
	AccessMode AccessMode `json:"accessMode,omitempty"`
	// DryRun is All if the request is only to be checked.
	//
	// +listType=atomic
	DryRun []string `json:"dryRun,omitempty"`
}

// RemoveVolumeOptions names a volume and its disk.
type RemoveVolumeOptions struct {
	// Name of the volume to remove.
	Name string `json:"name"`
	// DryRun is All if the request is only to be checked.
	//
	// +listType=atomic
	DryRun []string `json:"dryRun,omitempty"`
}

// KeepOptions name a volume that the guest has a copy of, and the claim that the copy is to be kept in.
type KeepOptions struct {
	// Name of the volume.
	Name string `json:"name"`
	// ClaimName is the claim that gets the copy.
	ClaimName string `json:"claimName"`
	// DryRun is All if the request is only to be checked.
	//
	// +listType=atomic
	DryRun []string `json:"dryRun,omitempty"`
}

// HotplugVolumeSource is a volume that can be added to a running machine. One field is set.
type HotplugVolumeSource struct {
	PersistentVolumeClaim *ClaimSource      `json:"persistentVolumeClaim,omitempty"`
	DataVolume            *DataVolumeSource `json:"dataVolume,omitempty"`
	NetworkSource         `json:",inline"`
}

// Count returns how many sources are set.
func (s *HotplugVolumeSource) Count() int {
	if s == nil {
		return 0
	}
	n := len(s.sources())
	if s.PersistentVolumeClaim != nil {
		n++
	}
	if s.DataVolume != nil {
		n++
	}
	return n
}

// Volume returns the volume as the machine gets it.
func (o *AddVolumeOptions) Volume() Volume {
	s := o.VolumeSource.DeepCopy()
	v := Volume{Name: o.Name, AccessMode: o.AccessMode, VolumeSource: VolumeSource{PersistentVolumeClaim: s.PersistentVolumeClaim, DataVolume: s.DataVolume,
		NetworkSource: s.NetworkSource}}
	switch {
	case v.PersistentVolumeClaim != nil:
		v.PersistentVolumeClaim.Hotpluggable = true
	case v.DataVolume != nil:
		v.DataVolume.Hotpluggable = true
	default:
		v.Hotpluggable = true
	}
	v.canonical()
	return v
}

// CanBeRemoved reports whether a volume may be removed from a machine that runs.
func (v *Volume) CanBeRemoved() bool {
	return v.Hotpluggable || v.DataVolume != nil && v.DataVolume.Hotpluggable || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable
}

// The phases of a volume that is added to a running machine or removed from it.
const (
	VolumePending   = "Pending"        // its claim is not bound or not filled
	VolumeBound     = "Bound"          // its pod is being started on the machine's node
	VolumeAttached  = "AttachedToNode" // its pod runs there
	VolumeMounted   = "MountedToPod"   // the machine has been handed the disk
	VolumeReady     = "Ready"          // the guest has it
	VolumeDetaching = "Detaching"      // the guest was asked to give it up
	VolumeUnmounted = "UnMountedFromPod"
)

// HotplugVolumeStatus is the pod that holds a volume on the machine's node.
type HotplugVolumeStatus struct {
	// AttachPodName is the pod that holds the volume for the launcher.
	AttachPodName string    `json:"attachPodName,omitempty"`
	AttachPodUID  types.UID `json:"attachPodUID,omitempty"`
}
