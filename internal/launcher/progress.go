package launcher

import (
	"bytes"
	"maps"
	"regexp"
	"strconv"
	"sync"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// progress is how far the copies of a machine are.
type progress struct {
	mu   sync.Mutex
	all  map[string]launcherapi.Copy // by volume
	file func(volume string) string
}

func newProgress() *progress {
	return &progress{all: map[string]launcherapi.Copy{}, file: backing.CopyFile}
}

// change notes what is new about a copy.
func (p *progress) change(volume string, change func(*launcherapi.Copy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.all[volume]
	change(&c)
	p.all[volume] = c
}

// now is how far they are, and what they take.
func (p *progress) now() map[string]launcherapi.Copy {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := maps.Clone(p.all)
	for volume, c := range out {
		c.Stored = backing.Stored(p.file(volume))
		out[volume] = c
	}
	return out
}

// letGo: the copy has all of its master.
func letGo(c *launcherapi.Copy) { c.Done, c.LetGo = c.Total, true }

// meter reads what qemu-img -p prints: "    (12.34/100%)" and a carriage return.
type meter struct {
	say  func(hundredths int64)
	rest []byte
}

var share = regexp.MustCompile(`\((\d+)\.(\d\d)/100%\)`)

func (m *meter) Write(text []byte) (int, error) {
	m.rest = append(m.rest, text...)
	if all := share.FindAllSubmatch(m.rest, -1); len(all) > 0 {
		last := all[len(all)-1]
		n, err := strconv.ParseInt(string(last[1])+string(last[2]), 10, 64)
		if err == nil {
			m.say(n)
		}
	}
	if i := bytes.LastIndexByte(m.rest, '\r'); i >= 0 {
		m.rest = m.rest[i+1:]
	}
	if len(m.rest) > 1<<10 {
		m.rest = nil
	}
	return len(text), nil
}

// wholly says that a copy holds all of its master sooner or later.
func wholly(mode kubevirt.CopyMode) bool {
	return mode == kubevirt.CopyOnRead || mode == kubevirt.CopyClone
}
