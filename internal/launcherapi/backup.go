package launcherapi

import (
	"encoding/json"
	"strings"
	"time"
)

// BackupVerb has the launcher hold the disks of its guest as they are at one moment, or give that up. It is followed by a BackupOrder; the Said
// has a BackupMoment.
const BackupVerb = "backup"

// BackupPort is where the disks of a moment are read, if no port of the guest is in the way. The BackupMoment says which it is.
const BackupPort = 8083

// BackupServer is the name in the certificate of the launcher, and BackupClient that in the worker's.
const (
	BackupServer = "berth-backup-source"
	BackupClient = "berth-backup-worker"
)

// BackupBitmap is the metadata context of the NBD exports in which extents that changed are dirty.
const BackupBitmap = "qemu:dirty-bitmap:berth-moment"

// BackupOrder is an order to a launcher about one backup. The launcher may get the same order again.
type BackupOrder struct {
	// ID is the UID of the backup.
	ID string `json:"id"`
	// End gives the moment up; Complete says that the backup is complete, so that changes are recorded since its checkpoint alone.
	End      bool `json:"end,omitempty"`
	Complete bool `json:"complete,omitempty"`
	// Tracker is the UID of the tracker; empty: no changes are recorded. Checkpoint is the name of the moment, and Since that of the one that
	// the backup is to be relative to; empty: it is to have all data.
	Tracker    string `json:"tracker,omitempty"`
	Checkpoint string `json:"checkpoint,omitempty"`
	Since      string `json:"since,omitempty"`
	// Volumes are those whose disks are held.
	Volumes []string `json:"volumes,omitempty"`
	// Quiesce has the guest's agent freeze the filesystems for the moment.
	Quiesce bool `json:"quiesce,omitempty"`
	// Room is how much the disks may take on the node while they are held, in bytes; 0: no limit is known.
	Room int64 `json:"room,omitempty"`
	// Certificate and Key are the launcher's, and Clients has the authority of those who may read; each as PEM.
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
	Clients     string `json:"clients,omitempty"`
}

// Line returns the order as the words of the verb.
func (o BackupOrder) Line() (string, error) {
	text, err := json.Marshal(o)
	return string(text), err
}

// ReadBackupOrder reads the words of the verb.
func ReadBackupOrder(line string) (BackupOrder, error) {
	var o BackupOrder
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	err := d.Decode(&o)
	return o, err
}

// BackupMoment reports the result of a BackupOrder.
type BackupMoment struct {
	// Busy is the backup that the launcher holds disks for; it holds none for this one.
	Busy string `json:"busy,omitempty"`
	// Later is why the disks cannot be held now, in words; it is worth another try.
	Later string `json:"later,omitempty"`
	// Broken is why what was held cannot be read any more, in words.
	Broken string `json:"broken,omitempty"`
	// Moment tells this moment from another that the launcher held for the same backup.
	Moment string    `json:"moment,omitempty"`
	Time   time.Time `json:"time,omitzero"`
	// Incremental: the exports tell what changed. If not, and a checkpoint was named, Full says why.
	Incremental bool   `json:"incremental,omitempty"`
	Full        string `json:"full,omitempty"`
	// Quiesced: the guest's filesystems were frozen. If they were to be and were not, Unquiesced says why.
	Quiesced   bool   `json:"quiesced,omitempty"`
	Unquiesced string `json:"unquiesced,omitempty"`
	// Port is where the disks are read.
	Port  int          `json:"port,omitempty"`
	Disks []BackupDisk `json:"disks,omitempty"`
}

// BackupDisk is a disk that is held.
type BackupDisk struct {
	Volume string `json:"volume"`
	Target string `json:"target,omitempty"` // its device name in the domain
	Size   int64  `json:"size"`
}
