package task

import (
	"encoding/json"
	"time"
)

// BackUp is the task of a worker that writes the disks of a machine into a set of backups (docs/reference/backup-format.md).
type BackUp struct {
	Version int    `json:"version"`
	Machine string `json:"machine"` // namespace/name, for messages only
	// Address is the address at which the guest's launcher serves the disks over mutual TLS, and Server the name in its certificate.
	Address string `json:"address,omitempty"`
	Server  string `json:"server,omitempty"`
	TLSDir  string `json:"tlsDir,omitempty"` // tls.crt, tls.key, ca.crt
	// Files are the files or devices of the disks of a machine that does not run, by their names; empty: the launcher serves the disks.
	Files map[string]string `json:"files,omitempty"`
	// Disks are the names of the disks, and the exports of the launcher. Bitmap is the metadata context in which extents that changed since the
	// parent are dirty; empty: all data is written, and Full says why.
	Disks  []string `json:"disks"`
	Bitmap string   `json:"bitmap,omitempty"`
	Full   string   `json:"full,omitempty"`
	// Compare: what changed since the parent is not recorded, so the disks are compared with it; Lost says why, if a record was asked for.
	Compare bool   `json:"compare,omitempty"`
	Lost    string `json:"lost,omitempty"`
	// Set is the directory of the set; its backups have the names of their checkpoints.
	Set        string `json:"set"`
	Checkpoint string `json:"checkpoint"`
	// Parent is the backup that increments are made on, and Proof the digest of its manifest.
	Parent string `json:"parent,omitempty"`
	Proof  string `json:"proof,omitempty"`
	// Moment tells what the disks hold: what an earlier worker wrote of the same one is continued.
	Moment  string    `json:"moment"`
	Created time.Time `json:"created"`
	// Object is the machine as it was.
	Object json.RawMessage `json:"object,omitempty"`
	// Serve has the disks served to clients, and nothing written; nil: they are written into the set.
	Serve *ServeBackup `json:"serve,omitempty"`
}

// ServeBackup is where a worker serves the disks of a backup over TLS.
type ServeBackup struct {
	Listen   string `json:"listen"`
	TLSDir   string `json:"tlsDir"`   // tls.crt, tls.key
	TokenDir string `json:"tokenDir"` // token, which clients have to show
}

// Written is a backup that was written.
type Written struct {
	// Incremental: it has what changed since its parent. If it has all data though it was to be relative to another, Full says why.
	Incremental bool   `json:"incremental,omitempty"`
	Full        string `json:"full,omitempty"`
	// Compared: what changed was found by comparing, because nothing had recorded it. Lost says why, if a record was asked for.
	Compared bool   `json:"compared,omitempty"`
	Lost     string `json:"lost,omitempty"`
	// Manifest is the digest of its manifest.
	Manifest string `json:"manifest"`
}
