package localdisk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// disk is an existing volume or snapshot.
type disk struct {
	record
	id        id
	size      int64 // the image's length
	allocated int64 // bytes of blocks the image has, shared ones included
}

// find reads a volume or snapshot of this pool.
func (p *pool) find(i id) (*disk, error) {
	if !p.holds(i) {
		return nil, status.Errorf(codes.NotFound, "%s %s is %s", i.kind.noun(), i, p.elsewhere(i))
	}
	r, err := readRecord(filepath.Join(p.dir(i), fileRecord))
	if errors.Is(err, fs.ErrNotExist) {
		if err := p.present(); err != nil {
			return nil, err
		}
		return nil, status.Errorf(codes.NotFound, "%s %s does not exist on node %s", i.kind.noun(), i, p.Node)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat(p.image(i), &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: p.image(i), Err: err}
	}
	return &disk{record: *r, id: i, size: st.Size, allocated: st.Blocks * 512}, nil
}

// findVolume reads the volume of a caller's handle.
func (p *pool) findVolume(handle string) (*disk, error) {
	i, err := parseID(kindVolume, handle)
	if err != nil {
		return nil, err
	}
	return p.find(i)
}

// list reads everything of a kind, in the order of keys. What is removed meanwhile is left out.
func (p *pool) list(k kind) ([]*disk, error) {
	root := filepath.Dir(p.dir(id{kind: k, key: "x"}))
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	disks := make([]*disk, 0, len(entries))
	for _, e := range entries {
		d, err := p.find(id{kind: k, key: e.Name(), pool: p.marker.ID, node: p.Node})
		if status.Code(err) == codes.NotFound || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		disks = append(disks, d)
	}
	sort.Slice(disks, func(a, b int) bool { return disks[a].id.key < disks[b].id.key })
	return disks, nil
}
