package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/task"
)

// Version is the version of the form. A reader refuses any other: what it does not know may be what makes a disk right.
const Version = 2

// ManifestFile is the name of a backup's manifest.
const ManifestFile = "manifest.json"

// Bounds of a manifest that is read.
const (
	maxManifest = 4 << 20
	maxDisks    = 256
	maxSize     = 1 << 56 // bytes of a disk, and of a file
)

// Manifest says what a backup consists of.
type Manifest struct {
	Version int `json:"version"`
	// Checkpoint is the backup's name, and that of its directory.
	Checkpoint string    `json:"checkpoint"`
	Created    time.Time `json:"created"`
	// Parent is the backup that increments lie over; nil: all disks are whole.
	Parent *Parent `json:"parent,omitempty"`
	Disks  []Disk  `json:"disks"`
	// Machine is the machine as it was, to make it again; this package does not look into it.
	Machine json.RawMessage `json:"machine,omitempty"`
}

// Parent names a backup. Its manifest has the digest of the one before, so the digest covers all earlier backups.
type Parent struct {
	Checkpoint string `json:"checkpoint"`
	Manifest   string `json:"manifest"` // "sha256:..." of the parent's manifest.json
}

// Disk is one disk of a backup.
type Disk struct {
	Name string `json:"name"` // the machine's name for it
	// Size is the size of the disk, in bytes.
	Size int64 `json:"size"`
	// Increment: the file has only what changed since the parent.
	Increment bool `json:"increment,omitempty"`
	// Granularity is the size of the parts in which changes are told.
	Granularity int64 `json:"granularity"`
	// File is the qcow2 image, Bytes large; Sums has a line for each Piece bytes of it with their BLAKE3 in hexadecimal.
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	Sums  string `json:"sums"`
	Piece int64  `json:"piece"`
	// Digest is "sha256:..." of Sums, and so of the image.
	Digest string `json:"digest"`
}

// The names of backups, disks and files are file names that no shell, URL or bucket reads as anything else.
var (
	names   = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.]{0,199}$`)
	digests = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// digest is how digests are spelled.
func digest(p []byte) string {
	sum := sha256.Sum256(p)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Parse reads a manifest and refuses one that makes no sense by itself.
func Parse(p []byte) (*Manifest, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(p, &version); err != nil {
		return nil, task.Errorf(task.BadImage, "the manifest is not JSON: %w", err)
	}
	if version.Version != Version {
		return nil, task.Errorf(task.UnsupportedImage, "the manifest has version %d, only %d is known", version.Version, Version)
	}
	d := json.NewDecoder(bytes.NewReader(p))
	d.DisallowUnknownFields()
	m := &Manifest{}
	if err := d.Decode(m); err != nil {
		return nil, task.Errorf(task.BadImage, "the manifest cannot be read: %w", err)
	}
	if d.More() {
		return nil, task.Errorf(task.BadImage, "the manifest goes on behind its end")
	}
	if err := m.check(); err != nil {
		return nil, &task.Error{Reason: task.BadImage, Err: fmt.Errorf("the manifest is damaged: %w", err)}
	}
	return m, nil
}

func (m *Manifest) check() error {
	if !names.MatchString(m.Checkpoint) {
		return fmt.Errorf("checkpoint %q is no file name", m.Checkpoint)
	}
	if p := m.Parent; p != nil {
		switch {
		case !names.MatchString(p.Checkpoint):
			return fmt.Errorf("parent %q is no file name", p.Checkpoint)
		case p.Checkpoint == m.Checkpoint:
			return fmt.Errorf("backup %s is its own parent", m.Checkpoint)
		case !digests.MatchString(p.Manifest):
			return fmt.Errorf("the digest of parent %s is %q", p.Checkpoint, p.Manifest)
		}
	}
	if len(m.Disks) == 0 || len(m.Disks) > maxDisks {
		return fmt.Errorf("it has %d disks, want 1 to %d", len(m.Disks), maxDisks)
	}
	used := map[string]bool{ManifestFile: true}
	for _, d := range m.Disks {
		if err := d.check(m.Parent != nil); err != nil {
			return fmt.Errorf("disk %q: %w", d.Name, err)
		}
		for _, name := range []string{" " + d.Name, d.File, d.Sums} {
			if used[name] {
				return fmt.Errorf("two things have the name %q", strings.TrimSpace(name))
			}
			used[name] = true
		}
	}
	return nil
}

func (d *Disk) check(hasParent bool) error {
	switch {
	case !names.MatchString(d.Name), !names.MatchString(d.File), !names.MatchString(d.Sums):
		return fmt.Errorf("%q or %q is no file name", d.File, d.Sums)
	case d.Size <= 0 || d.Size > maxSize || d.Size%512 != 0:
		return fmt.Errorf("it has %d bytes", d.Size)
	case d.Bytes <= 0 || d.Bytes > maxSize:
		return fmt.Errorf("its file has %d bytes", d.Bytes)
	case d.Piece < minPiece || d.Piece > maxPiece || d.Piece&(d.Piece-1) != 0:
		return fmt.Errorf("its sums are of %d bytes each, want a power of two from %d to %d", d.Piece, minPiece, maxPiece)
	case d.Granularity < 512 || d.Granularity > maxPiece || d.Granularity&(d.Granularity-1) != 0:
		return fmt.Errorf("its granularity is %d", d.Granularity)
	case d.Increment && !hasParent:
		return fmt.Errorf("it is an increment, and the backup has no parent")
	case !digests.MatchString(d.Digest):
		return fmt.Errorf("its digest is %q", d.Digest)
	}
	return nil
}

// disk is the disk of that name.
func (m *Manifest) disk(name string) (Disk, error) {
	var has []string
	for _, d := range m.Disks {
		if d.Name == name {
			return d, nil
		}
		has = append(has, d.Name)
	}
	return Disk{}, task.Errorf(task.BadTask, "backup %s has no disk %q, it has %s", m.Checkpoint, name, strings.Join(has, ", "))
}
