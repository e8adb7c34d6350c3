// Package clone prepares the source that a claim is cloned from: it finds the source and everything that the clone depends on,
// lets internal/decide/clonenode and internal/decide/clone decide where and how the clone is made and the next step, and makes the
// helper objects of the clone: a snapshot of the source, the claim that a snapshot is restored to, the server of a clone that is
// streamed.
//
// It observes, then decides, then acts, in this order. It does not fill the claim: the engine of internal/controller/fill does, with
// what this package says, and decides when.
package clone

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/clonenode"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// Cloner prepares the sources of clones.
type Cloner struct {
	*observer
	cluster *cluster.Writer
	clock   clock.PassiveClock
	image   string // the image workers run
}

// observer reads the facts about clones. It writes nothing.
type observer struct {
	reader  client.Reader // cached
	live    client.Reader // the API server itself, for the few facts that must not be stale
	objects cluster.Reading
	tokens  clonesource.Verifier
	records *diskaccess.Records
}

// Parts has the dependencies of a Cloner.
type Parts struct {
	Reader client.Reader // cached
	Live   client.Reader // the API server itself
	Writer *cluster.Writer
	Clock  clock.PassiveClock
	Image  string               // that workers run
	Tokens clonesource.Verifier // of proofs that clones across namespaces were allowed
	// Records are the access records of disks; nil: only those of this Cloner.
	Records *diskaccess.Records
}

// New puts a Cloner together.
func New(p Parts) *Cloner {
	if p.Records == nil {
		p.Records = diskaccess.New(p.Reader, p.Live, p.Writer)
	}
	return &Cloner{
		observer: &observer{
			reader: p.Reader, live: p.Live, objects: cluster.Reading{Objects: p.Reader, Live: p.Live}, tokens: p.Tokens, records: p.Records,
		},
		cluster: p.Writer, clock: p.Clock, image: p.Image,
	}
}

// Delays before the next check of something that causes no event.
const (
	refusedEvery  = 30 * time.Second // a person has to do something that we cannot watch
	snapshotEvery = 2 * time.Second  // the snapshot API is an add-on that may not be there to watch
)

// Order names the claim to fill and its owner.
type Order struct {
	// For is the object the claim is filled for, and Owner says so on what is made in its namespace.
	For   client.Object
	Owner metav1.OwnerReference
	// Finalizer is set on For while an object made for it exists in another namespace; Kept is the rest of For's metadata that this
	// controller owns.
	Finalizer string
	Kept      *cluster.Marks

	Namespace, Name string // of the claim
	UID             types.UID
	Annotations     map[string]string
	Spec            *cdiv1.DataVolumeSpec // the source, or the reference to it

	Placed  bool           // a node was chosen for the claim
	Wish    clone.Strategy // how the clone is asked to be made; empty: in the cheapest way
	Allowed bool           // the caller has checked that a source in another namespace may be read
}

// Target describes the claim itself.
type Target struct {
	Claim  *corev1.PersistentVolumeClaim // nil: there is none yet
	Class  *storagev1.StorageClass       // of the claim
	Wanted *corev1.PersistentVolumeClaimSpec
	Vague  bool // there is none, and what was asked for cannot be completed
	Block  bool

	Recorded bool        // its contents are recorded: nothing may be written to it any more, or its state is unknown
	Grown    bool        // its driver fills it with a disk that is smaller than the claim is for
	Readable bool        // it is bound, or will be by the worker that reads the source
	Worker   *corev1.Pod // that fills it; nil: there is none

	Settings config.Settings
	Content  task.Content
}

// Seen is the part of the cluster that one clone depends on, and what was decided about it.
type Seen struct {
	order    Order
	now      time.Time
	target   Target
	resolved clonesource.Resolved
	at       clonesource.Ref // what is cloned; zero: the volume is no clone
	found    clonesource.Found
	denied   error // why it may not be read; nil: it may
	lost     string
	class    *storagev1.StorageClass // of the source, if that is a claim

	home     *corev1.NodeSelector // where the source can be used; nil: everywhere
	place    clonenode.Facts
	apart    bool // no node reaches both the source and the claim's volume
	stranded bool // the worker needs both of them in one pod, and they are apart
	driver   bool // the provisioner of the claim's class is a CSI driver
	wish     *cdiv1.CDICloneStrategy
	classes  struct{ target, source string } // for snapshots of the claim's and of the source's storage class
	restores *storagev1.StorageClass         // makes claims of the snapshot that is the source
	user     string                          // who may be writing to the source, as a sentence; "" if none
	taken    *volumesnapshot.Snapshot        // of the source, by us
	restored *corev1.PersistentVolumeClaim   // that a snapshot was restored to, to be read from
	readable bool                            // restored is bound, or will be by its first reader
	server   *corev1.Pod                     // the worker that serves the source to another node
	admitted bool                            // it is recorded as a holder of what it serves
	asked    bool                            // it was looked for, because a worker was made to read from it
	chosen   bool                            // everything that a choice depends on was looked at

	decision
}

// Source returns what the volume is filled from, references followed; nil: another populator.
func (s *Seen) Source() *cdiv1.DataVolumeSource { return s.resolved.Source }

// Backup returns the disk of a backup that the volume is filled with; nil if it is filled with another source.
func (s *Seen) Backup() *clonesource.Backup { return s.resolved.Backup }

// IsClone reports whether the volume is a clone.
func (s *Seen) IsClone() bool { return s.at.Name != "" || s.at.Kind != "" }
