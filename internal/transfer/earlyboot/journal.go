package earlyboot

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// journal records which clusters are the guest's. It keeps two promises, each with a record of its own:
//
//   - A write that was answered survives the end of this process: its clusters are noted (in the kernel's hands, not on stable
//     storage) before the answer.
//   - A write that was flushed survives the end of the node. The clusters' bytes, the image's around the guest's included, are
//     made durable first, and then a record that says up to which note that was done.
//
// After the node's end notes beyond the last such record are worth nothing: they may have reached the storage and the bytes
// not. The kernel's boot id tells the two apart.
type journal struct {
	path string
	mu   sync.Mutex
	file *os.File
	// noted counts the runs of clusters in the file; sure is up to which of them the bytes are durable.
	noted, sure uint64
}

// heading is the first line of a journal.
type heading struct {
	Claim string `json:"claim"` // the claim that is filled: what was left on a volume by an earlier one is not the guest's
	Size  int64  `json:"size"`  // of the disk
	Boot  string `json:"boot"`
	// Whole: the disk is complete and its source was intact; the fill has ended.
	Whole bool `json:"whole,omitempty"`
}

const (
	journalMagic = "berth guest 1 "
	headingMax   = 1 << 10
	recordSize   = 16
	// Kinds of records. A run is clusters of the guest's: how many, and the first. A sure one says how many runs are durable.
	kindRun, kindSure = 1, 2
	longestRun        = 1<<16 - 1
	// mostUnsure bounds the memory for a journal that may be forged: a real guest flushes long before.
	mostUnsure = 1 << 20
	// MostSize bounds the memory for the sets of a disk: those of 16 TiB have 32 MiB each.
	MostSize = 16 << 40
)

// bootID is this run of the kernel.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("ask which run of the kernel this is: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func record(kind, n uint16, value uint64) []byte {
	b := binary.BigEndian.AppendUint16(nil, kind)
	b = binary.BigEndian.AppendUint16(b, n)
	b = binary.BigEndian.AppendUint64(b, value)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// readJournal reads the journal for the disk of a claim; nil without an error if there is none. own are the guest's clusters.
func readJournal(path, claim string) (h *heading, own bits, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open the notes of the guest's writes: %w", err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	boot, err := bootID()
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReaderSize(f, 64<<10)
	if h, err = readHeading(in); err != nil || h == nil || h.Claim != claim {
		return nil, nil, err
	}
	own, err = readRuns(in, h, h.Boot == boot)
	return h, own, err
}

func readHeading(in *bufio.Reader) (*heading, error) {
	line, err := in.ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("read the notes of the guest's writes: %w", err)
	}
	var h heading
	rest, ours := bytes.CutPrefix(line, []byte(journalMagic))
	if !ours || len(line) > headingMax || json.Unmarshal(rest, &h) != nil || h.Size < 0 || h.Size > MostSize {
		return nil, nil // it is renamed into place as a whole, so what is no journal was not left by us
	}
	return &h, nil
}

// readRuns reads the clusters. The first record that is not whole ends it: the one that was being written. With all unset only
// those count whose bytes are durable, so it takes two passes in one: runs wait until a sure record covers them.
func readRuns(in io.Reader, h *heading, all bool) (bits, error) {
	own, size := newBits(h.Size), h.Size/cluster+1
	type run struct{ first, n int64 }
	var waiting []run // not sure yet, only if that matters
	seen, b := uint64(0), make([]byte, recordSize)
	take := func(r run) {
		for c := r.first; c < r.first+r.n; c++ {
			own.add(c)
		}
	}
	for {
		_, err := io.ReadFull(in, b)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return own, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the notes of the guest's writes: %w", err)
		}
		if crc32.ChecksumIEEE(b[:12]) != binary.BigEndian.Uint32(b[12:]) {
			return own, nil
		}
		kind, n, value := binary.BigEndian.Uint16(b), int64(binary.BigEndian.Uint16(b[2:])), binary.BigEndian.Uint64(b[4:])
		switch {
		case kind == kindRun && value < uint64(size) && n <= size-int64(value):
			seen++
			switch r := (run{int64(value), n}); {
			case all:
				take(r)
			case len(waiting) == mostUnsure:
				return own, nil
			default:
				waiting = append(waiting, r)
			}
		case kind == kindSure && value <= seen:
			for len(waiting) > 0 && seen-uint64(len(waiting)) < value {
				take(waiting[0])
				waiting = waiting[1:]
			}
		default:
			return own, nil
		}
	}
}

// newJournal puts a new journal in place of whatever is there. The clusters in own are durable already.
func newJournal(path string, h heading, own bits) (*journal, error) {
	var err error
	if h.Boot, err = bootID(); err != nil {
		return nil, err
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("write the notes of the guest's writes: %w", err)
	}
	f, err := os.OpenFile(path+"-new", os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o660)
	if err != nil {
		return nil, fmt.Errorf("begin to note the guest's writes: %w", err)
	}
	j := &journal{path: path, file: f}
	out := bufio.NewWriter(f)
	_, err = fmt.Fprintf(out, "%s%s\n", journalMagic, head)
	for c := int64(0); c < h.Size/cluster+1 && err == nil; c++ {
		n := int64(0)
		for n < longestRun && c+n < h.Size/cluster+1 && own != nil && own.has(c+n) {
			n++
		}
		if n > 0 {
			_, err = out.Write(record(kindRun, uint16(n), uint64(c)))
			j.noted, c = j.noted+1, c+n-1
		}
	}
	j.sure = j.noted
	if err == nil {
		_, err = out.Write(record(kindSure, 0, j.sure))
	}
	err = errors.Join(err, out.Flush(), f.Sync(), os.Rename(path+"-new", path), syncDir(path))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin to note the guest's writes: %w", err), f.Close())
	}
	return j, nil
}

func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// note says that clusters are the guest's.
func (j *journal) note(first, n int64) error {
	var b []byte
	runs := uint64(0)
	for ; n > 0; runs++ {
		m := min(n, longestRun)
		b = append(b, record(kindRun, uint16(m), uint64(first))...)
		first, n = first+m, n-m
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.append(b); err != nil {
		return err
	}
	j.noted += runs
	return nil
}

// append adds records at the end. A record that was written in part ends the journal for its readers.
func (j *journal) append(b []byte) error {
	at, err := j.file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = j.file.WriteAt(b, at)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("note the guest's writes: %w", err), j.file.Truncate(at))
	}
	return nil
}

// flush makes durable what sync makes durable, and then the note of it.
func (j *journal) flush(sync func() error) error {
	j.mu.Lock()
	upTo := j.noted
	j.mu.Unlock()
	if err := sync(); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if upTo <= j.sure {
		return nil
	}
	if err := j.append(record(kindSure, 0, upTo)); err != nil {
		return err
	}
	if err := unix.Fdatasync(int(j.file.Fd())); err != nil {
		return fmt.Errorf("make the notes of the guest's writes durable: %w", err)
	}
	j.sure = upTo
	return nil
}

func (j *journal) close() error { return j.file.Close() }
