// Package stream serves the disks in container images as LUNs of an iSCSI target, each fetched from its registry as it is read. It is
// what `worker stream` does.
//
// It knows nothing of Kubernetes: images, credentials and directories are told by whoever starts it.
package stream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/iscsi"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
	"github.com/berth-vm/berth/internal/transfer/lazy"
)

// Config is what to serve.
type Config struct {
	Target       string          // iqn....
	Images       []task.Registry // the number of a LUN is that of its image here, from 0 on
	User, Secret string          // for CHAP; empty: everybody may
	Address      string          // where discovery says that the target is; empty: where it was asked
	CacheDir     string
	CacheLimit   int64
	Log          func(format string, args ...any)
}

// Server is a target whose LUNs come when their images could be opened.
type Server struct {
	config Config
	target *iscsi.Target
	cache  *lazy.Cache

	mu    sync.Mutex
	disks []*lun
}

// lun is one image.
type lun struct {
	number int
	image  task.Registry
	disk   *transfer.Streamed // nil until it is open
	err    error              // why it is not
}

// MostImages is how many images one server has at most.
const MostImages = 64

// New opens the cache. Run does the rest.
func New(c Config) (*Server, error) {
	if len(c.Images) > MostImages {
		return nil, fmt.Errorf("%d images: at most %d are served", len(c.Images), MostImages)
	}
	cache, err := lazy.OpenCache(c.CacheDir, c.CacheLimit)
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, cache: cache}
	s.target = &iscsi.Target{Name: c.Target, User: c.User, Secret: c.Secret, Address: c.Address, Log: c.Log}
	for i, image := range c.Images {
		s.disks = append(s.disks, &lun{number: i, image: image})
	}
	return s, nil
}

// Run serves on l until ctx ends.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	var all sync.WaitGroup
	defer s.close()
	defer all.Wait()
	defer s.cache.Close() // ends reads that wait, so that all can be waited for
	for _, d := range s.disks {
		all.Go(func() { s.bring(ctx, d) })
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close(); s.cache.Close() })
	defer stop()
	return s.target.Serve(l)
}

func (s *Server) close() {
	for _, d := range s.disks {
		if d.disk != nil {
			_ = d.disk.Close() // only read
		}
	}
}

// pause is how long an image that cannot be opened is left alone.
const pause = 10 * time.Second

// bring opens an image, as often as it takes, and says when it is known what its bytes are worth.
func (s *Server) bring(ctx context.Context, d *lun) {
	for {
		disk, err := transfer.OpenStreamed(ctx, d.image, s.cache)
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
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// serve makes a disk a LUN.
func (s *Server) serve(d *lun, disk *transfer.Streamed) error {
	id := sha256.Sum256(fmt.Appendf(nil, "%s %d", disk.Version(), d.number))
	if err := s.target.Put(d.number, &iscsi.LUN{Disk: &patient{disk}, ID: hex.EncodeToString(id[:16])}); err != nil {
		return errors.Join(err, disk.Close())
	}
	s.mu.Lock()
	d.disk = disk
	s.mu.Unlock()
	s.log("LUN %d is %s, %d bytes, %s", d.number, d.image.URL, disk.Size(), disk.Version())
	return nil
}

// watch says once what came of the pass.
func (s *Server) watch(d *lun) {
	if !d.disk.State().Proven {
		d.disk.Settled()
	}
	switch at := d.disk.State(); {
	case at.Condemned != nil:
		s.log("LUN %d answers no more: %v", d.number, at.Condemned)
	case at.Proven:
		s.log("LUN %d: the layer's digest is right, and so is everything that was read of it", d.number)
	}
}

func (s *Server) log(format string, args ...any) {
	if s.config.Log != nil {
		s.config.Log(format, args...)
	}
}

// patient tells initiators what may be tried again.
type patient struct{ *transfer.Streamed }

// ReadAt implements iscsi.Disk.
func (p *patient) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.Streamed.ReadAt(b, off)
	if lazy.Away(err) {
		err = fmt.Errorf("%w: %w", iscsi.ErrBusy, err)
	}
	return n, err
}
