// Package guestdisk reads the disks of a machine for a backup: of a running guest as they were at one moment, from the NBD exports of the guest's
// launcher; of a machine that does not run from the claims themselves, and there it finds what changed by comparing with the backup before.
//
// It trusts the launcher with the contents of the disks and with nothing else. It does not know how the moment is held, nor who keeps a machine from
// being started while its claims are read.
package guestdisk

import (
	"context"
	"fmt"
	"net"

	"github.com/berth-vm/berth/internal/nbd"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/encode"
)

const allocation = "base:allocation"

// Disk is a disk of a guest. Close it to end the connection.
type Disk struct {
	client *nbd.Client
	volume string
	bitmap string
}

// Open opens the disk of a volume on a connection to the launcher. If bitmap is not empty it names the metadata context in which extents that
// changed are dirty.
func Open(conn net.Conn, volume, bitmap string) (*Disk, error) {
	contexts := []string{allocation}
	if bitmap != "" {
		contexts = append(contexts, bitmap)
	}
	c, err := nbd.Open(conn, volume, contexts...)
	if err != nil {
		return nil, fmt.Errorf("open disk %s of the guest: %w", volume, err)
	}
	return &Disk{client: c, volume: volume, bitmap: bitmap}, nil
}

// Close ends the connection.
func (d *Disk) Close() error { return d.client.Close() }

// Source returns the disk as a backup takes it: as a whole, or what changed.
func (d *Disk) Source() backup.Source {
	s := backup.Source{Name: d.volume, Disk: encode.Disk{ReaderAt: d.client, Size: d.client.Size(), Data: d.list(allocation, nbd.Zero, false)}}
	if d.bitmap != "" {
		s.Changed = d.list(d.bitmap, nbd.Dirty, true)
	}
	return s
}

// list returns a function that lists the ranges whose flag in a metadata context is set, or is not.
func (d *Disk) list(name string, flag uint32, set bool) func(context.Context, int64, int64) ([][2]int64, error) {
	return func(ctx context.Context, from, to int64) ([][2]int64, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var out [][2]int64
		err := d.client.ExtentsIn(name, from, to, func(e nbd.Extent) error {
			if (e.Flags&flag != 0) == set {
				out = append(out, [2]int64{e.Offset, e.Length})
			}
			return nil
		})
		return out, err
	}
}
