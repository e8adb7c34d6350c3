package localdisk

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// recordVersion is the version of the record's format; a pool of a newer driver is not touched by an older one.
const recordVersion = 1

// maxRecord bounds what is read of a record; a real one has a few hundred bytes.
const maxRecord = 64 << 10

// The modes of a volume, as Kubernetes spells them.
const (
	modeBlock      = "Block"
	modeFilesystem = "Filesystem"
)

// record describes a volume or snapshot besides its image. It never changes: the size is the image's length.
type record struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Mode    string    `json:"mode"`
	FSType  string    `json:"fsType,omitempty"` // of Filesystem volumes: what is on the image
	// Preallocated volumes have all their blocks from the start.
	Preallocated bool `json:"preallocated,omitempty"`
	// Source is the volume or snapshot whose bytes it began with; of a snapshot it is the volume.
	Source string `json:"source,omitempty"`
}

func writeRecord(path string, r *record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode record %s: %w", path, err)
	}
	return writeFile(path, append(data, '\n'))
}

func readRecord(path string) (*record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return decodeRecord(f)
}

func decodeRecord(f *os.File) (*record, error) {
	data, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", f.Name(), err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("decode record %s: %w", f.Name(), err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("record %s has version %d, this driver knows %d", f.Name(), r.Version, recordVersion)
	}
	return &r, nil
}

// writeFile writes a file so that after a crash it is there in full or not at all.
func writeFile(path string, data []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory last.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}
