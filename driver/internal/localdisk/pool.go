package localdisk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Names in a pool.
const (
	dirVolumes   = "volumes"
	dirSnapshots = "snapshots"
	dirMaking    = "making"
	dirTrash     = "trash"
	fileImage    = "disk.img"
	fileRecord   = "volume.json"
	fileNode     = "node"
	fileLock     = "lock"
)

// Settings are an administrator's settings of a pool.
type Settings struct {
	Dir  string // the pool's directory, which has a marker
	Node string // the node's name
	// Capacity is how many bytes the pool may fill; 0 means all of its filesystem, which then must be its own.
	Capacity int64
	// Overcommit is how many bytes may be promised for each existing byte; 1 promises none twice.
	Overcommit float64
	// UsageType names the classes that use the pool; "" for classes that name none.
	UsageType string
	// FSType is the filesystem of Filesystem volumes whose class names none: ext4 or xfs.
	FSType string
}

// pool is a directory with volumes. Its methods are safe for use by several goroutines; who changes one volume has its
// lock in Driver.
type pool struct {
	Settings
	lock    *os.File
	marker  marker
	log     *slog.Logger
	reflink bool // the filesystem shares blocks between files

	space   sync.Mutex       // held from looking for room until it is reserved
	pending map[string]int64 // bytes reserved for what is being made, by directory

	patience time.Duration // for who has a device open that should be free

	// reached is called after every step that changes the disk; tests end the process there.
	reached func(step string)
}

// openPool takes a directory that is marked as a pool, making what is missing and removing what a crash left half made or
// half removed. In a directory that is not marked it writes nothing, for a disk may be meant to be mounted over it.
func openPool(s Settings, log *slog.Logger) (*pool, error) {
	if !nodePattern.MatchString(s.Node) {
		return nil, fmt.Errorf("node name %q cannot be a topology label: at most 63 lower case letters, digits, '-' and '.'", s.Node)
	}
	if s.Overcommit <= 0 {
		return nil, fmt.Errorf("overcommit ratio %v is not above 0", s.Overcommit)
	}
	if _, known := filesystems[s.FSType]; !known {
		return nil, fmt.Errorf("filesystem %q is not ext4 or xfs", s.FSType)
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // the mount table has no links
		return nil, fmt.Errorf("open pool: %w", err)
	}
	if _, err := look(dir, s.Node); err != nil {
		return nil, err
	}
	s.Dir = dir
	p := &pool{Settings: s, log: log, pending: map[string]int64{}, patience: patience, reached: func(string) {}}
	if p.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	if err := p.prepare(); err != nil {
		return nil, errors.Join(err, p.lock.Close())
	}
	return p, nil
}

func (p *pool) close() error { return p.lock.Close() }

// lockDir keeps a second driver out; the kernel gives the lock back when the process ends, however it ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, fileLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open pool %s: %w", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("pool %s is used by another process: %w", dir, err), f.Close())
	}
	return f, nil
}

func (p *pool) prepare() error {
	if err := p.settleMarker(); err != nil {
		return err
	}
	for _, name := range []string{dirVolumes, dirSnapshots, dirMaking, dirTrash} {
		if err := os.MkdirAll(filepath.Join(p.Dir, name), 0o700); err != nil {
			return fmt.Errorf("prepare pool: %w", err)
		}
	}
	for _, name := range []string{dirMaking, dirTrash} {
		if err := p.empty(name); err != nil {
			return err
		}
	}
	var err error
	p.reflink, err = p.probeReflink()
	return err
}

// empty removes everything under a directory of the pool.
func (p *pool) empty(name string) error {
	dir := filepath.Join(p.Dir, name)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		p.log.Info("remove what an interrupted call left", "path", filepath.Join(dir, e.Name()))
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("empty %s: %w", dir, err)
		}
	}
	return nil
}

// probeReflink finds out by trying: what a filesystem is called does not tell whether it was made with shared blocks.
func (p *pool) probeReflink() (bool, error) {
	dir := filepath.Join(p.Dir, dirMaking, "probe-"+rand.Text())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	from, err := os.Create(filepath.Join(dir, "from"))
	if err != nil {
		return false, err
	}
	defer from.Close()
	if _, err := from.Write(make([]byte, 1<<16)); err != nil {
		return false, fmt.Errorf("write to pool %s: %w", p.Dir, err)
	}
	to, err := os.Create(filepath.Join(dir, "to"))
	if err != nil {
		return false, err
	}
	defer to.Close()
	return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil, nil
}

// dir returns the directory of a volume or snapshot.
func (p *pool) dir(i id) string {
	if i.kind == kindSnapshot {
		return filepath.Join(p.Dir, dirSnapshots, i.key)
	}
	return filepath.Join(p.Dir, dirVolumes, i.key)
}

func (p *pool) image(i id) string { return filepath.Join(p.dir(i), fileImage) }
