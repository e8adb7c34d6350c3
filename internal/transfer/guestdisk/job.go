package guestdisk

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/chain"
	"github.com/berth-vm/berth/internal/transfer/sink"
)

// Job writes a backup of a machine.
type Job struct {
	task    task.BackUp
	read    atomic.Int64
	stage   atomic.Value
	written task.Written
	bytes   int64 // of the images that are stored
	virtual int64
	devices map[string]bool // disks that do not tell where they have data
	pulled  atomic.Pointer[[]*pulled]
}

// NewJob makes a job for t. It does nothing before Run.
func NewJob(t task.BackUp) *Job {
	j := &Job{task: t, devices: map[string]bool{}}
	j.stage.Store(task.Connecting)
	return j
}

// Progress may be called at any time. How much there is to read is not known before.
func (j *Job) Progress() task.Progress {
	stage, _ := j.stage.Load().(task.Stage)
	if disks := j.pulled.Load(); disks != nil && !slices.ContainsFunc(*disks, func(d *pulled) bool { return !d.rest.none() }) {
		stage = task.Finished // clients have everything
	}
	return task.Progress{Version: task.Version, Stage: stage, Done: j.read.Load()}
}

// Run writes the backup and returns a report. If there is an error, the set has no such backup, and those before are as they were.
func (j *Job) Run(ctx context.Context) task.Report {
	err := j.run(ctx)
	r := task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed, Read: j.read.Load(), Written: j.bytes, Virtual: j.virtual}
	if err == nil {
		r.Backup = &j.written
		return r
	}
	r.Reason, r.Detail = task.TargetFailed, err.Error()
	var known *task.Error
	switch {
	case ctx.Err() != nil:
		r.Reason = task.Interrupted
	case errors.As(err, &known):
		r.Reason = known.Reason
	}
	r.Outcome = r.Reason.Outcome()
	return r
}

func (j *Job) run(ctx context.Context) error {
	t := j.task
	switch {
	case t.Version != task.Version:
		return task.Errorf(task.BadTask, "task version %d, this worker knows %d: worker and controller come from different releases", t.Version, task.Version)
	case t.Set == "" && t.Serve == nil || t.Address == "" && len(t.Files) == 0 || len(t.Disks) == 0:
		return task.Errorf(task.BadTask, "the task names no set, no address or no disks")
	case t.Serve != nil:
		return j.pull(ctx)
	}
	if err := os.MkdirAll(t.Set, 0o770); err != nil {
		return task.Errorf(task.TargetFailed, "make the directory of the backups: %w", err)
	}
	parent, err := j.parent(ctx)
	if err != nil {
		return err
	}
	plan := backup.Plan{Checkpoint: t.Checkpoint, Moment: t.Moment, Created: t.Created, Machine: t.Object}
	if parent != nil {
		plan.Parent, j.written.Incremental = t.Parent, true
	}
	disks := j.served
	if len(t.Files) > 0 {
		disks = j.still
	}
	done, err := disks(ctx, parent, &plan)
	defer done()
	if err != nil {
		return err
	}
	j.stage.Store(task.Transferring)
	if err := j.findChanges(ctx, parent, &plan); err != nil {
		return err
	}
	m, err := backup.Write(ctx, t.Set, plan)
	if err != nil {
		return err
	}
	for _, d := range m.Disks {
		j.bytes += stored(ctx, filepath.Join(t.Set, t.Checkpoint, d.File), d.Bytes)
	}
	_, j.written.Manifest, err = backup.Find(ctx, t.Set, t.Checkpoint)
	j.stage.Store(task.Finished)
	return err
}

// stored returns how many of the bytes of an image are stored: zeroes that a disk does not tell to be zeroes are read, and are holes in the image.
func stored(ctx context.Context, path string, size int64) int64 {
	f, err := os.Open(path)
	if err != nil {
		return size
	}
	defer f.Close() // it was only looked at
	data, err := sink.DataIn(ctx, f, 0, size)
	if err != nil {
		return size
	}
	sum := int64(0)
	for _, d := range data {
		sum += d[1]
	}
	return sum
}

// served opens the disks that the launcher serves. done closes them.
func (j *Job) served(ctx context.Context, parent *backup.Manifest, plan *backup.Plan) (done func(), err error) {
	bitmap := ""
	if parent != nil {
		bitmap = j.task.Bitmap
	}
	open, done, err := j.openServed(ctx, bitmap)
	for _, d := range open {
		plan.Disks = append(plan.Disks, j.source(d, parent))
	}
	return done, err
}

// openServed opens the disks at the launcher. done closes them.
func (j *Job) openServed(ctx context.Context, bitmap string) (open []*Disk, done func(), err error) {
	done = func() {
		for _, d := range open {
			_ = d.Close() // it was only read
		}
	}
	config, err := clientTLS(j.task)
	if err != nil {
		return nil, done, err
	}
	for _, name := range j.task.Disks {
		d, err := j.open(ctx, config, name, bitmap)
		if err != nil {
			return open, done, err
		}
		open = append(open, d)
		j.virtual += d.client.Size()
	}
	return open, done, nil
}

// parent returns the backup that increments are made on; nil: all data is written, and it is noted why.
func (j *Job) parent(ctx context.Context) (*backup.Manifest, error) {
	t := j.task
	if t.Parent == "" || t.Bitmap == "" && !t.Compare {
		j.written.Full = t.Full
		return nil, nil
	}
	m, proof, err := backup.Find(ctx, t.Set, t.Parent)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		j.written.Full = fmt.Sprintf("backup %s, which it was to be made on, cannot be read in the claim: %v", t.Parent, err)
		return nil, nil
	case t.Proof != "" && proof != t.Proof:
		j.written.Full = fmt.Sprintf("backup %s, which it was to be made on, is another one in the claim than was written", t.Parent)
		return nil, nil
	}
	if j.written.Full = j.below(ctx, m); j.written.Full != "" {
		return nil, ctx.Err()
	}
	return m, nil
}

// below returns why an increment over a backup could not be restored; "" if it could.
func (j *Job) below(ctx context.Context, m *backup.Manifest) string {
	for _, d := range m.Disks {
		n, err := backup.Links(ctx, backup.InDirectory(j.task.Set), backup.Which{Checkpoint: m.Checkpoint, Disk: d.Name})
		switch {
		case err != nil:
			return fmt.Sprintf("backup %s, which it was to be made on, cannot be restored any more: %v", m.Checkpoint, err)
		case n >= chain.MaxLinks:
			return fmt.Sprintf("backup %s, which it was to be made on, is the last of %d: a disk in more cannot be restored", m.Checkpoint, n)
		}
	}
	return ""
}

// source returns a disk as it is to be written: as a whole if its parent does not have it, or has a larger one.
func (j *Job) source(d *Disk, parent *backup.Manifest) backup.Source {
	s := d.Source()
	s.ReaderAt = counted{d, &j.read}
	if parent == nil {
		return s
	}
	if !under(parent, s) {
		s.Changed = nil
	}
	return s
}

// under reports whether the parent has a disk that this one can be an increment of.
func under(parent *backup.Manifest, s backup.Source) bool {
	return slices.ContainsFunc(parent.Disks, func(below backup.Disk) bool { return below.Name == s.Name && below.Size <= s.Size })
}

// counted counts what is read of a disk, and gives errors their reason.
type counted struct {
	disk *Disk
	read *atomic.Int64
}

// ReadAt implements io.ReaderAt.
func (c counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.disk.client.ReadAt(p, off)
	c.read.Add(int64(n))
	if err != nil {
		err = task.Errorf(task.SourceUnavailable, "read disk %s of the guest at byte %d: %w", c.disk.volume, off, err)
	}
	return n, err
}

// connect bounds how long the launcher may take to answer.
const connect = 30 * time.Second

// open connects to the launcher and opens a disk.
func (j *Job) open(ctx context.Context, config *tls.Config, name, bitmap string) (*Disk, error) {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: connect}, Config: config}
	conn, err := d.DialContext(ctx, "tcp", j.task.Address)
	if err != nil {
		return nil, task.Errorf(task.SourceUnreachable, "connect to the launcher of %s at %s: %w", j.task.Machine, j.task.Address, err)
	}
	_ = conn.SetDeadline(time.Now().Add(connect))
	disk, err := Open(conn, name, bitmap)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, task.Errorf(task.SourceUnavailable, "%w", errors.Join(err, conn.Close()))
	}
	return disk, nil
}

// clientTLS returns the keys of this worker, and the authority of the launcher.
func clientTLS(t task.BackUp) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(filepath.Join(t.TLSDir, "tls.crt"), filepath.Join(t.TLSDir, "tls.key"))
	if err != nil {
		return nil, task.Errorf(task.BadTask, "read this worker's certificate: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(t.TLSDir, "ca.crt"))
	if err != nil {
		return nil, task.Errorf(task.BadTask, "read the launcher's authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, task.Errorf(task.BadTask, "ca.crt holds no certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, RootCAs: roots, ServerName: t.Server}, nil
}
