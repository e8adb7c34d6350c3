// Package streamserver serves the disks in container images as LUNs of an iSCSI target, and as exports of an NBD server, each
// fetched from its registry as it is read. `worker stream` runs it.
//
// It knows nothing of Kubernetes: images, credentials and directories are given by its caller.
package streamserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/iscsi"
	"github.com/berth-vm/berth/internal/nbd"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/lazydisk"
	"github.com/berth-vm/berth/internal/transfer/lazylayer"
)

// Config configures a Server.
type Config struct {
	Target     string                                  // iqn....
	Images     []task.Registry                         // the number of a LUN is that of its image here, from 0 on
	Login      func() (user, secret string, err error) // for CHAP; nil: everybody may
	Address    string                                  // where discovery says that the target is; empty: where it was asked
	CacheDir   string
	CacheLimit int64
	Volume     Volume // for a container that makes volumes; it has one image
	Log        func(format string, args ...any)
}

// Server is a target whose LUNs come when their images could be opened.
type Server struct {
	config Config
	target *iscsi.Target
	cache  *lazylayer.Cache
	pause  time.Duration // for which an image that cannot be opened is left alone

	mu    sync.Mutex
	disks []*lun
}

// lun is one image.
type lun struct {
	number int
	image  task.Registry
	disk   *lazydisk.Disk // nil until it is open
	err    error          // why it is not
}

// MostImages is how many images one server has at most.
const MostImages = 64

// New opens the cache. Run does the rest.
func New(c Config) (*Server, error) {
	if len(c.Images) > MostImages {
		return nil, fmt.Errorf("%d images: at most %d are served", len(c.Images), MostImages)
	}
	cache, err := lazylayer.OpenCache(c.CacheDir, c.CacheLimit)
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, cache: cache, pause: 10 * time.Second}
	s.target = &iscsi.Target{Name: c.Target, Login: c.Login, Address: c.Address, Log: c.Log}
	for i, image := range c.Images {
		s.disks = append(s.disks, &lun{number: i, image: image})
	}
	return s, nil
}

// Listeners are the listeners of the server's protocols; only the first is needed.
type Listeners struct{ ISCSI, NBD, Volume, Health net.Listener }

// Run serves until ctx ends, or one of its parts cannot continue.
func (s *Server) Run(ctx context.Context, l Listeners) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	defer s.close()
	defer all.Wait()
	defer s.cache.Close() // ends reads that wait, so that all can be waited for
	for _, d := range s.disks {
		all.Go(func() { s.bring(ctx, d) })
	}
	ended := make(chan error, 4)
	begin := func(l net.Listener, serve func() error) {
		if l == nil {
			return
		}
		context.AfterFunc(ctx, func() { _ = l.Close() })
		all.Go(func() {
			ended <- serve()
			cancel() // one server without the others is of no use; the pod restarts all of them
		})
	}
	context.AfterFunc(ctx, s.cache.Close)
	begin(l.ISCSI, func() error { return s.target.Serve(l.ISCSI) })
	begin(l.NBD, func() error { return (&nbd.Exports{Lookup: s.export}).Serve(l.NBD) })
	begin(l.Volume, func() error { return s.serveVolume(ctx, l.Volume, s.config.Volume) })
	begin(l.Health, func() error { return s.serveHealth(ctx, l.Health) })
	return <-ended
}

// export returns the disk of a LUN's number; the empty name is that of the first.
func (s *Server) export(name string) nbd.Disk {
	number, err := strconv.Atoi(name)
	if name != "" && (err != nil || strconv.Itoa(number) != name) || number < 0 || number >= len(s.disks) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.disks[number].disk; d != nil {
		return d
	}
	return nil
}

func (s *Server) close() {
	for _, d := range s.disks {
		if d.disk != nil {
			_ = d.disk.Close() // only read
		}
	}
}

// bring opens an image, as often as it takes, and says when it is known what its bytes are worth.
func (s *Server) bring(ctx context.Context, d *lun) {
	for {
		disk, err := lazydisk.Open(ctx, d.image, s.cache)
		if err == nil {
			err = s.serve(d, disk)
		}
		s.mu.Lock()
		d.err = err
		s.mu.Unlock()
		if err == nil {
			s.watch(d)
			return
		}
		if ctx.Err() != nil {
			return
		}
		s.log("LUN %d: %v; it is tried again", d.number, err)
		t := time.NewTimer(s.pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// serve makes a disk a LUN.
func (s *Server) serve(d *lun, disk *lazydisk.Disk) error {
	id := sha256.Sum256(fmt.Appendf(nil, "%s %d", disk.Version(), d.number))
	if err := s.target.Put(d.number, &iscsi.LUN{Disk: &retryable{disk}, ID: hex.EncodeToString(id[:16])}); err != nil {
		return errors.Join(err, disk.Close())
	}
	s.mu.Lock()
	d.disk = disk
	s.mu.Unlock()
	s.log("LUN %d is %s, %d bytes, %s", d.number, d.image.URL, disk.Size(), disk.Version())
	switch at := disk.State(); {
	case at.Table:
		s.log("LUN %d: the layer has a table of contents", d.number)
	case at.NoTable != nil:
		s.log("LUN %d: the layer's table of contents is not used: %v", d.number, at.NoTable)
	}
	return nil
}

// watch logs the result of the pass.
func (s *Server) watch(d *lun) {
	if !d.disk.State().Proven {
		d.disk.Settled()
	}
	if at := d.disk.State(); at.Proven || at.Condemned != nil {
		s.log("LUN %d: %s", d.number, verification(d.disk))
	}
}

// verification describes the verification state of a disk's bytes.
func verification(d *lazydisk.Disk) string {
	switch at := d.State(); {
	case at.Condemned != nil:
		return fmt.Sprintf("answers no more: %v", at.Condemned)
	case at.Proven:
		return "the layer's digest is right, and so is everything that was read of it"
	case at.Away != nil:
		return fmt.Sprintf("not yet verified, and waits: %v", at.Away)
	default:
		return fmt.Sprintf("not yet verified, %d bytes of the layer are read", at.Reached)
	}
}

func (s *Server) log(format string, args ...any) {
	if s.config.Log != nil {
		s.config.Log(format, args...)
	}
}

// retryable tells initiators what may be tried again.
type retryable struct{ *lazydisk.Disk }

// ReadAt implements iscsi.Disk.
func (p *retryable) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.Disk.ReadAt(b, off)
	if lazylayer.Away(err) {
		err = fmt.Errorf("%w: %w", iscsi.ErrBusy, err)
	}
	return n, err
}
