// Package backup lets others read the disks of a running guest as they were at one moment, and records what the guest changes from one such
// moment to the next. The guest stands still for some milliseconds and keeps no layer under its disks.
//
// It speaks QEMU's machine protocol and nothing else: it does not know who reads the disks, where the data goes, or when a backup is complete.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// QEMU runs commands of QEMU's machine protocol. A Refusal is returned as an error.
type QEMU interface {
	Run(command string, arguments any) (json.RawMessage, error)
}

// Disk is a disk of the guest.
type Disk struct {
	Volume string
	// Node is the name of the block node that the guest's device uses.
	Node string
	// Device is the path of the guest's device in QEMU's tree of objects.
	Device string
	// Size is in bytes.
	Size int64
}

// granularity is how many bytes one bit of a bitmap stands for.
const granularity = 64 << 10

// prefix is the start of the names of all bitmaps of checkpoints. Other bitmaps are not touched.
const prefix = "berth:"

// Checkpoint names a moment that changes are recorded since. Each tracker has its own.
type Checkpoint struct{ Tracker, Name string }

func (c Checkpoint) bitmap() string { return prefix + c.Tracker + ":" + c.Name }

// args are the arguments of a command.
type args = map[string]any

// bitmap is a dirty bitmap as QEMU reports it.
type bitmap struct {
	Name         string `json:"name"`
	Count        int64  `json:"count"`
	Recording    bool   `json:"recording"`
	Busy         bool   `json:"busy"`
	Inconsistent bool   `json:"inconsistent"`
}

// bitmaps returns the dirty bitmaps of every block node.
func bitmaps(q QEMU) (map[string][]bitmap, error) {
	answer, err := q.Run("query-named-block-nodes", args{"flat": true})
	if err != nil {
		return nil, err
	}
	var nodes []struct {
		Name    string   `json:"node-name"`
		Bitmaps []bitmap `json:"dirty-bitmaps"`
	}
	if err := json.Unmarshal(answer, &nodes); err != nil {
		return nil, fmt.Errorf("read QEMU's list of block nodes: %w", err)
	}
	out := map[string][]bitmap{}
	for _, n := range nodes {
		out[n.Name] = n.Bitmaps
	}
	return out, nil
}

// missing returns why a backup since a checkpoint cannot be made of these disks; "" if it can.
func missing(has map[string][]bitmap, since Checkpoint, disks []Disk) string {
	for _, d := range disks {
		found := false
		for _, b := range has[d.Node] {
			if b.Name != since.bitmap() {
				continue
			}
			if b.Inconsistent || !b.Recording {
				return fmt.Sprintf("what changed on disk %s since checkpoint %s was not recorded to its end", d.Volume, since.Name)
			}
			found = true
		}
		if !found {
			return fmt.Sprintf("nothing recorded what changed on disk %s since checkpoint %s", d.Volume, since.Name)
		}
	}
	return ""
}

// Drop stops recording changes since a checkpoint. It is no error if nothing is recorded.
func Drop(q QEMU, c Checkpoint) error {
	return removeWhere(q, func(name string) bool { return name == c.bitmap() })
}

// Keep stops recording changes since all checkpoints of the tracker but one.
func Keep(q QEMU, c Checkpoint) error {
	return removeWhere(q, func(name string) bool {
		return strings.HasPrefix(name, prefix+c.Tracker+":") && name != c.bitmap()
	})
}

func removeWhere(q QEMU, chosen func(name string) bool) error {
	has, err := bitmaps(q)
	if err != nil {
		return err
	}
	var errs []error
	for node, all := range has {
		for _, b := range all {
			if chosen(b.Name) {
				_, err := q.Run("block-dirty-bitmap-remove", args{"node": node, "name": b.Name})
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Changed returns how many bytes of each disk changed since a checkpoint, by volume. Disks without a record are left out.
func Changed(q QEMU, since Checkpoint, disks []Disk) (map[string]int64, error) {
	has, err := bitmaps(q)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, d := range disks {
		for _, b := range has[d.Node] {
			if b.Name == since.bitmap() && b.Recording && !b.Inconsistent {
				out[d.Volume] = b.Count
			}
		}
	}
	return out, nil
}
