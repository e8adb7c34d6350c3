// Package resume keeps the note from which a later run continues a transfer: what it is bound to, what it says, and when it is written.
//
// It does not know how data is transferred: its callers say what can be claimed at the moment. Nor does it know where at the
// target the note lies (package sink does).
package resume

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// version changes whenever a note of before would be misread.
const version = 1

// ErrStartOver is a note that turns out to be of no use.
var ErrStartOver = errors.New("the checkpoint of an earlier run cannot be used")

// Note is a checkpoint: the part of a transfer that is on stable storage. It is bound to the task and to the version of the
// source, so it never continues another transfer.
type Note struct {
	Version int    `json:"version"`
	Task    string `json:"task"`   // its identity
	Source  string `json:"source"` // source.Info.Version
	Size    int64  `json:"size"`   // of the source
	Format  string `json:"format"`
	Virtual int64  `json:"virtual"` // size of the image's disk, -1 while unknown

	Mark int64  `json:"mark"` // everything of the source before this is on the disk, but for Held
	Hash []byte `json:"hash,omitempty"`
	// HashAt is how many bytes of the source Hash covers; never more than the transfer continues from.
	HashAt int64         `json:"hashAt,omitempty"`
	Held   []Held        `json:"held,omitempty"`
	State  *decode.State `json:"state,omitempty"` // of a compressed stream
	Image  []byte        `json:"image,omitempty"` // the state of the image's decoder, which may be a little further
	Parked int64         `json:"parked,omitempty"`

	before string // wholeIdentity of the task
}

// Held is an extent before the mark whose place on the disk is where the note lies: it has to be fetched again.
type Held struct {
	format.Extent
	Sum []byte `json:"sum,omitempty"` // SHA-256 of the stored bytes, if a checksum of the whole was asked for
}

// identity returns a digest of the fields that two tasks share if one may continue the other: the claim, and the fields that
// decide which bytes are written to it. Fields about the connection (a proxy, certificates, logins) and the size of the disk are
// not in it: they may change at any time, and a disk that a guest has used cannot be begun again.
func identity(t task.Task) string {
	s := t.Source
	what := struct {
		Claim, Kind, Location, Architecture, Checksum string
		Raw                                           bool
		Content                                       task.Content
		Path                                          string
	}{Claim: t.Claim, Checksum: t.Checksum, Raw: t.Raw, Content: t.Target.Content, Path: t.Target.Path}
	switch {
	case s.HTTP != nil:
		what.Kind, what.Location = "http", s.HTTP.URL
	case s.S3 != nil:
		what.Kind, what.Location = "s3", s.S3.URL
	case s.GCS != nil:
		what.Kind, what.Location = "gcs", s.GCS.URL
	case s.Registry != nil:
		what.Kind, what.Location, what.Architecture = "registry", s.Registry.URL, s.Registry.Architecture
	case s.Local != nil:
		what.Kind, what.Location, what.Raw = "local", s.Local.Path, what.Raw || s.Local.Raw
	case s.Peer != nil:
		what.Kind = "peer" // its address is that of a pod; the version of the volume that it serves says which one that is
	case s.Upload != nil:
		what.Kind = "upload"
	case s.Blank != nil:
		what.Kind = "blank"
	case s.Backup != nil:
		what.Kind, what.Location = "backup", s.Backup.Checkpoint+"/"+s.Backup.Disk // its version is a digest of the bytes
	case s.Chain != nil:
		what.Kind, what.Location = "chain", digestOf(s.Chain.Files)
	}
	return digestOf(what)
}

// wholeIdentity returns the identity in notes of versions that took all of the task for it.
func wholeIdentity(t task.Task) string {
	t.Early = false
	return digestOf(t)
}

func digestOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "" // plain data: cannot happen, and the empty string never matches
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// NewNote begins the note of a transfer.
func NewNote(t task.Task, info source.Info) Note {
	return Note{Version: version, Task: identity(t), before: wholeIdentity(t), Source: info.Version, Size: info.Size, Virtual: -1}
}

// MayContinue reports whether old, which an earlier run left, is of the same transfer, and if not, why in a few words. An old note
// without a reason is not worth a message.
func (n Note) MayContinue(old *Note) (ok bool, why string) {
	switch {
	case old == nil || old.Version != n.Version || n.Task == "" || old.Task != n.Task && old.Task != n.before:
		return false, ""
	case n.Source == "":
		return false, "the source cannot prove that it is unchanged"
	case old.Source != n.Source || old.Size != n.Size:
		return false, "the source changed since an earlier run began"
	}
	return true, ""
}

// ReadNote reads what an earlier run left; nil: it is no note.
func ReadNote(b []byte) *Note {
	var n Note
	if b == nil || json.Unmarshal(b, &n) != nil {
		return nil
	}
	return &n
}
