// Package earlyboot lets a guest use a disk while it is being filled. A cluster of the disk is absent or present. An absent
// cluster that the guest reads is fetched first; a cluster that the guest writes is present from then on, so that the fill never
// overwrites it: guest writes win. A journal beside the disk lists the guest's clusters, so that a fill that was killed continues
// without losing an acknowledged write.
//
// It knows neither where the image is nor how the disk is stored: it is between the two, and serves the disk over NBD on a socket
// beside it. Other packages decide what happens to a guest whose image is damaged, or whose source does not answer; a file beside
// the disk tells them (Notice).
package earlyboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-vm/berth/internal/transfer/format"
)

// cluster is the unit of fetching, writing and the record: small enough that a guest's write in the middle of one costs a short
// fetch, large enough that the record of a disk of 1 TiB takes 2 MiB of memory.
const cluster = 64 << 10

// beside returns the name of a file beside a disk that is a file. The sink names its own files in the same way, and a copy of the
// volume leaves all of them out.
func beside(disk, what string) string {
	dir, base := filepath.Split(disk)
	return filepath.Join(dir, "."+base+".berth-"+what)
}

// Socket returns where a disk is served while it is being filled.
func Socket(disk string) string { return beside(disk, "nbd") }

// journalFile returns where the guest's clusters are noted.
func journalFile(disk string) string { return beside(disk, "guest") }

// Notice is a message that a worker leaves beside a disk for the launcher of its guest.
type Notice string

// The words.
const (
	// Verdict is the word that the disk cannot be completed, with the reason. It is taken back when the disk is being filled again.
	Verdict Notice = "verdict"
	// Away is the word that a read of the guest has failed because the source does not answer. It is taken back when the source answers.
	Away Notice = "away"
)

// wordMost bounds what is read of a word; one is a sentence.
const wordMost = 4 << 10

// Leave writes the word, in place of an earlier one.
func (w Notice) Leave(disk, why string) error {
	part := beside(disk, string(w)+"-new")
	if err := errors.Join(os.WriteFile(part, []byte(why[:min(len(why), wordMost)]), 0o660), os.Rename(part, beside(disk, string(w)))); err != nil {
		return fmt.Errorf("leave word of the disk: %w", err)
	}
	return nil
}

// TakeBack deletes the word, if there is one.
func (w Notice) TakeBack(disk string) error {
	if err := os.Remove(beside(disk, string(w))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take back a word of the disk: %w", err)
	}
	return nil
}

// Of returns the text of the word; empty if there is none.
func (w Notice) Of(disk string) string {
	b, err := os.ReadFile(beside(disk, string(w)))
	if err != nil {
		return ""
	}
	return string(b[:min(len(b), wordMost)])
}

// Source is the image that the disk is filled from.
type Source struct {
	// Fetch reads a stretch of the image's file.
	Fetch func(ctx context.Context, from, to int64) ([]byte, error)
	// Expand returns the bytes that the stored ones of a coded extent stand for. They are the caller's.
	Expand func(e format.Extent, stored []byte) ([]byte, error)
	// Places maps each part of the disk to its position in the file.
	Places *Map
}
