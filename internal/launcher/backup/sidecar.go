package backup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Sidecar is the file in which the record of what changed on a disk is kept while no QEMU runs.
type Sidecar struct {
	Disk Disk
	// Path is where the file is kept, beside the disk. Others may write there, so QEMU never opens it.
	Path string
	// Work is a directory of the launcher's own, on which the file is made and read.
	Work string
}

const (
	// sidecarNode is the name of the block node of a sidecar while QEMU has it open.
	sidecarNode = "berth-sidecar"
	// mostSidecar bounds the file: one bitmap of a disk of 1 TiB has 2 MiB, and one of zeroes has a few clusters.
	mostSidecar = 64 << 20
)

func (s Sidecar) work() string { return filepath.Join(s.Work, "sidecar") }

// Save writes the records of the disk's checkpoints to the file. The guest must not run. Without records there is no file afterwards.
// The file appears whole or not at all.
func (s Sidecar) Save(ctx context.Context, q QEMU) error {
	has, err := bitmaps(q)
	if err != nil {
		return err
	}
	var names []string
	for _, b := range has[s.Disk.Node] {
		if strings.HasPrefix(b.Name, prefix) && b.Recording && !b.Inconsistent {
			names = append(names, b.Name)
		}
	}
	if len(names) == 0 {
		return s.remove()
	}
	defer func() { _ = os.Remove(s.work()) }()
	out, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", s.work(), strconv.FormatInt(s.Disk.Size, 10)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("create the sidecar of disk %s: %w: %.300s", s.Disk.Volume, err, out)
	}
	if err := s.open(q, false); err != nil {
		return err
	}
	err = merge(q, s.Disk.Node, sidecarNode, names, args{"persistent": true, "disabled": true})
	_, failed := q.Run("blockdev-del", args{"node-name": sidecarNode}) // writes the bitmaps
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("write the sidecar of disk %s: %w", s.Disk.Volume, err)
	}
	return s.put()
}

// Load begins the records that Save has written and removes the file: from the guest's first write on it would be wrong. The guest must not
// run yet. If the records are of no use, lost says why; that is no error, and the next backup has all data.
func (s Sidecar) Load(q QEMU) (lost string, err error) {
	defer func() { _ = os.Remove(s.work()) }()
	found, err := s.take()
	if err != nil || !found {
		return "", errors.Join(err, s.remove())
	}
	if err := s.load(q); err != nil {
		lost = fmt.Sprintf("the record of what changed on disk %s is of no use: %v", s.Disk.Volume, err)
	}
	return lost, s.remove()
}

func (s Sidecar) load(q QEMU) error {
	if err := check(s.work(), s.Disk.Size); err != nil {
		return err
	}
	if err := s.open(q, true); err != nil {
		return err
	}
	defer func() { _, _ = q.Run("blockdev-del", args{"node-name": sidecarNode}) }()
	has, err := bitmaps(q)
	if err != nil {
		return err
	}
	var names []string
	for _, b := range has[sidecarNode] {
		if b.Inconsistent {
			return errors.New("it was not written to its end")
		}
		if strings.HasPrefix(b.Name, prefix) {
			names = append(names, b.Name)
		}
	}
	return merge(q, sidecarNode, s.Disk.Node, names, nil)
}

// merge creates copies of bitmaps of one node on another, all or none.
func merge(q QEMU, from, to string, names []string, options args) error {
	var actions []args
	for _, name := range names {
		add := args{"node": to, "name": name, "granularity": granularity}
		for k, v := range options {
			add[k] = v
		}
		actions = append(actions, args{"type": "block-dirty-bitmap-add", "data": add}, args{"type": "block-dirty-bitmap-merge",
			"data": args{"node": to, "target": name, "bitmaps": []args{{"node": from, "name": name}}}})
	}
	if len(actions) == 0 {
		return nil
	}
	_, err := q.Run("transaction", args{"actions": actions})
	return err
}

func (s Sidecar) open(q QEMU, readOnly bool) error {
	_, err := q.Run("blockdev-add", args{"driver": "qcow2", "node-name": sidecarNode, "read-only": readOnly, "backing": nil,
		"file": args{"driver": "file", "filename": s.work(), "read-only": readOnly}})
	if err != nil {
		return fmt.Errorf("open the sidecar of disk %s: %w", s.Disk.Volume, err)
	}
	return nil
}

// check refuses a file that makes QEMU open others, or that is not of a disk of this size: any user who can write to the claim may
// have made it.
func check(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var head [104]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return fmt.Errorf("it is too short: %w", err)
	}
	be := binary.BigEndian
	switch {
	case be.Uint32(head[:]) != 0x514649fb || be.Uint32(head[4:]) != 3:
		return errors.New("it is no qcow2 file of version 3")
	case be.Uint64(head[8:]) != 0:
		return errors.New("it names a backing file")
	case be.Uint64(head[72:]) != 0:
		return fmt.Errorf("it has incompatible features %#x", be.Uint64(head[72:])) // an external data file among them
	case be.Uint32(head[32:]) != 0 || be.Uint32(head[60:]) != 0:
		return errors.New("it is encrypted or has snapshots")
	case be.Uint64(head[24:]) != uint64(size):
		return fmt.Errorf("it is of a disk of %d bytes, and the disk has %d", be.Uint64(head[24:]), size)
	}
	return nil
}

// take copies the file to the launcher's own directory. It reports whether there is one.
func (s Sidecar) take() (bool, error) {
	in, err := os.OpenFile(s.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, nil //nolint:nilerr // a link or the like: nothing that Save has written
	}
	defer func() { _ = in.Close() }()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > mostSidecar {
		return false, err
	}
	out, err := os.OpenFile(s.work(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, fmt.Errorf("read the sidecar: %w", err)
	}
	_, err = io.Copy(out, io.LimitReader(in, mostSidecar))
	return true, errors.Join(err, out.Close())
}

// put copies the file from the launcher's own directory to its place.
func (s Sidecar) put() error {
	in, err := os.Open(s.work())
	if err != nil {
		return fmt.Errorf("keep the sidecar: %w", err)
	}
	defer func() { _ = in.Close() }()
	part := s.Path + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("keep the sidecar: %w", err)
	}
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("keep the sidecar: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return errors.Join(fmt.Errorf("keep the sidecar: %w", err), os.Remove(part))
	}
	if err := os.Rename(part, s.Path); err != nil {
		return fmt.Errorf("keep the sidecar: %w", err)
	}
	return s.flush()
}

// remove removes the file so that it does not come back after a crash.
func (s Sidecar) remove() error {
	if err := os.RemoveAll(s.Path); err != nil {
		return fmt.Errorf("remove the sidecar: %w", err)
	}
	return s.flush()
}

func (s Sidecar) flush() error {
	dir, err := os.Open(filepath.Dir(s.Path))
	if err != nil {
		return fmt.Errorf("flush the sidecar's directory: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}
