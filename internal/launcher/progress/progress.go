// Package progress records the progress of the copies of a machine's volumes.
package progress

import (
	"maps"
	"sync"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Copies records the progress of the copies of a machine. Several goroutines use it.
type Copies struct {
	mu   sync.Mutex
	all  map[string]launcherapi.Copy // by volume
	File func(volume string) string
}

// New records the progress of copies at their usual paths.
func New() *Copies {
	return &Copies{all: map[string]launcherapi.Copy{}, File: backing.CopyFile}
}

// Change changes what is recorded of a copy.
func (p *Copies) Change(volume string, change func(*launcherapi.Copy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.all[volume]
	change(&c)
	p.all[volume] = c
}

// Now returns what is recorded of the copies, with the room that they take.
func (p *Copies) Now() map[string]launcherapi.Copy {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := maps.Clone(p.all)
	for volume, c := range out {
		c.Stored = backing.Stored(p.File(volume))
		out[volume] = c
	}
	return out
}
