package localdisk

import (
	"fmt"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// room is the size of a pool and the sum of its promises, in bytes.
type room struct {
	Capacity int64 // of the pool
	Promised int64 // to volumes (their size) and snapshots (the blocks they keep)
	Free     int64 // in the filesystem, right now
	Limit    int64 // of what may be promised: Capacity times the overcommit ratio
	Ratio    float64
	Used     int64 // what volumes and snapshots have written; blocks that they share may count twice, but never more than are used
	Volumes  int
}

// Available returns how large the next thin volume may be: what is not promised yet, and never more than the free blocks allow,
// for other programs may fill the filesystem.
func (r room) Available() int64 {
	free := float64(r.Free) * r.Ratio
	return max(0, min(r.Limit-r.Promised, int64(free)))
}

func (r room) String() string {
	return fmt.Sprintf("%s of %s promised (overcommit %g), %s free", size(r.Promised), size(r.Limit), r.Ratio, size(r.Free))
}

// room adds up. It reads every record: a node has hundreds of volumes, not millions, and what is on the disk is never
// out of date.
func (p *pool) room() (room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(p.Dir, &st); err != nil {
		return room{}, fmt.Errorf("measure pool %s: %w", p.Dir, err)
	}
	r := room{Capacity: int64(st.Blocks) * st.Bsize, Free: int64(st.Bavail) * st.Bsize, Ratio: p.Overcommit}
	if p.Capacity > 0 {
		r.Capacity = min(r.Capacity, p.Capacity)
	}
	r.Limit = int64(float64(r.Capacity) * r.Ratio)
	volumes, err := p.list(kindVolume)
	if err != nil {
		return room{}, err
	}
	for _, v := range volumes {
		r.Promised += max(v.size, v.allocated)
		r.Used += v.allocated
	}
	r.Volumes = len(volumes)
	snapshots, err := p.list(kindSnapshot)
	if err != nil {
		return room{}, err
	}
	for _, s := range snapshots {
		r.Promised += s.allocated
		r.Used += s.allocated
	}
	r.Used = min(r.Used, int64(st.Blocks-st.Bfree)*st.Bsize)
	for _, bytes := range p.pending {
		r.Promised += bytes
	}
	return r, nil
}

// measure returns the free space, for callers that reserve nothing.
func (p *pool) measure() (room, error) {
	p.space.Lock()
	defer p.space.Unlock()
	return p.room()
}

// reserve sets bytes aside until release; it refuses with the numbers. Preallocated bytes must be there in full.
func (p *pool) reserve(name string, bytes int64, preallocated bool) (release func(), err error) {
	p.space.Lock()
	defer p.space.Unlock()
	r, err := p.room()
	if err != nil {
		return nil, err
	}
	if bytes > r.Available() || preallocated && bytes > r.Free {
		return nil, status.Errorf(codes.ResourceExhausted,
			"%s do not fit into the pool of node %s: %s; at most %s can be had", size(bytes), p.Node, r, size(r.largest(preallocated)))
	}
	p.pending[name] = bytes
	return func() {
		p.space.Lock()
		defer p.space.Unlock()
		delete(p.pending, name)
	}, nil
}

func (r room) largest(preallocated bool) int64 {
	if preallocated {
		return min(r.Available(), r.Free)
	}
	return r.Available()
}

// size is bytes for people.
func size(bytes int64) string {
	const units = "KMGTPE"
	if bytes < 1<<10 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	value, unit := float64(bytes), -1
	for value >= 1<<10 && unit < len(units)-1 {
		value /= 1 << 10
		unit++
	}
	return fmt.Sprintf("%.4g %ciB", value, units[unit])
}
