package localdisk

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fileMarker makes a directory a pool. An administrator creates it empty, on the filesystem for the pool; the driver fills it in.
// A directory without it is never used: it may be the mount point of a disk that is not mounted.
const fileMarker = "pool.json"

// markerVersion is the version of the marker's format.
const markerVersion = 1

// marker identifies the pool.
type marker struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // part of the handles of its volumes
	Node    string `json:"node"`
	// Upgraded pools were made by a driver that had no marker: handles without a pool's ID are theirs.
	Upgraded bool `json:"upgraded,omitempty"`
}

// poolPattern is the ID of a pool: 64 random bits in hexadecimal.
var poolPattern = regexp.MustCompile(`^[0-9a-f]{16}$`)

// look finds out which pool a directory is, and writes nothing. The marker it returns has no ID if the driver still has to
// fill it in.
func look(dir, node string) (marker, error) {
	early, err := os.ReadFile(filepath.Join(dir, fileNode)) // drivers without a marker wrote the node's name here
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return marker{}, fmt.Errorf("read the pool's node: %w", err)
	}
	m := marker{Version: markerVersion, Node: node, Upgraded: err == nil}
	if m.Upgraded {
		m.Node = string(early)
	}
	data, err := os.ReadFile(filepath.Join(dir, fileMarker))
	unmarked := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !unmarked:
		return marker{}, fmt.Errorf("read the pool's marker: %w", err)
	case err == nil && len(data) > 0:
		if m, err = readMarker(data); err != nil {
			return marker{}, fmt.Errorf("marker %s: %w", filepath.Join(dir, fileMarker), err)
		}
	}
	if m.Node != node {
		return marker{}, fmt.Errorf("pool %s belongs to node %s, this is node %s", dir, m.Node, node)
	}
	if unmarked {
		return m, mayUpgrade(dir, m.Upgraded)
	}
	return m, nil
}

func readMarker(data []byte) (marker, error) {
	var m marker
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("decode: %w", err)
	}
	if m.Version != markerVersion {
		return m, fmt.Errorf("its version is %d, this driver knows %d", m.Version, markerVersion)
	}
	if !poolPattern.MatchString(m.ID) {
		return m, fmt.Errorf("its id %q is not one of a pool", m.ID)
	}
	return m, nil
}

// mayUpgrade lets a pool without a marker become one with it if an earlier driver used it and it is a filesystem of its own.
// What an earlier driver left in the directory of a node's own filesystem may be the other side of a mount point.
func mayUpgrade(dir string, used bool) error {
	path := filepath.Join(dir, fileMarker)
	if !used {
		return fmt.Errorf("%s is not a pool: %s is missing. If the pool's disk is not mounted, mount it. "+
			"To make a new pool of what is mounted there, run on the node: touch %s", dir, fileMarker, path)
	}
	own, err := ownFilesystem(dir)
	if err != nil || own {
		return err
	}
	return fmt.Errorf("%s was used by an earlier version of the driver and is not a filesystem of its own. "+
		"If the pool's disk is not mounted, mount it. If the pool is meant to be here, run on the node: touch %s", dir, path)
}

// ownFilesystem reports whether a directory is the root of a mounted filesystem. A container sees a directory of the node's
// filesystem as a mount too, but not as that filesystem's root.
func ownFilesystem(dir string) (bool, error) {
	m, err := mountAt(dir)
	return err == nil && m != nil && m.root == "/", err
}

// settleMarker fills the marker in. The pool's lock is held.
func (p *pool) settleMarker() error {
	m, err := look(p.Dir, p.Node)
	if err != nil {
		return err
	}
	own, err := ownFilesystem(p.Dir)
	if err != nil {
		return err
	}
	if !own && p.Capacity == 0 {
		return fmt.Errorf("pool %s is a directory of a filesystem that it shares with other data: "+
			"say with --capacity how much of it the pool may fill, or mount a disk there", p.Dir)
	}
	if m.ID != "" {
		p.marker = m
		return nil
	}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return fmt.Errorf("choose the pool's id: %w", err)
	}
	m.ID = hex.EncodeToString(id)
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the pool's marker: %w", err)
	}
	if err := writeFile(filepath.Join(p.Dir, fileMarker), append(data, '\n')); err != nil {
		return err
	}
	p.marker = m
	return nil
}

// present returns why the pool's directory is not the pool any more: its filesystem was unmounted, or another one was mounted
// over it. What is not found there then says nothing about the pool.
func (p *pool) present() error {
	have, err := p.lock.Stat()
	if err != nil {
		return fmt.Errorf("look at the pool's lock: %w", err)
	}
	there, err := os.Stat(filepath.Join(p.Dir, fileLock))
	if err == nil && os.SameFile(have, there) {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "pool %s of node %s is not at %s any more: was its disk unmounted? "+
		"Mount it again and restart the driver of this node", p.marker.ID, p.Node, p.Dir)
}

// holds reports whether a handle is one of this pool's, whether or not there is a volume under it.
func (p *pool) holds(i id) bool {
	return i.node == p.Node && (i.pool == p.marker.ID || i.pool == "" && p.marker.Upgraded)
}

// elsewhere returns where a handle that is not of this pool belongs, for people.
func (p *pool) elsewhere(i id) string {
	switch {
	case i.node != p.Node:
		return fmt.Sprintf("on node %s, this is node %s", i.node, p.Node)
	case i.pool == "":
		return fmt.Sprintf("in a pool that node %s had before pool %s", p.Node, p.marker.ID)
	}
	return fmt.Sprintf("in pool %s, node %s has pool %s now", i.pool, p.Node, p.marker.ID)
}

// newID returns the handle of something that is made in this pool.
func (p *pool) newID(k kind, name string) id {
	i := newID(k, name, p.Node)
	i.pool = p.marker.ID
	return i
}
