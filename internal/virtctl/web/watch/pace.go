package watch

import (
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/virtctl/status"
)

// pace remembers the progress of volumes, to compute how fast they are filled: objects have a percentage only.
type pace struct {
	mu   sync.Mutex
	seen map[string][]sample
}

// sample is the progress of a volume at a time, in percent.
type sample struct {
	at      time.Time
	percent float64
}

const (
	// paceFor is the time over which a speed is measured: long enough to be steady, short enough to show a change.
	paceFor = 15 * time.Second
	// paceAfter is how long after its last change a volume has no speed.
	paceAfter = 30 * time.Second
)

func newPace() *pace { return &pace{seen: map[string][]sample{}} }

// note takes the progress of a DataVolume, or of a claim that is filled without one.
func (p *pace) note(object any, now time.Time) {
	var key, text string
	switch o := object.(type) {
	case *cdiv1.DataVolume:
		key, text = status.Key(o.Namespace, o.Name), string(o.Status.Progress)
	case *corev1.PersistentVolumeClaim:
		key, text = status.Key(o.Namespace, o.Name), o.Annotations[status.Progress]
		if text == "" {
			return // a DataVolume represents it, or nothing does
		}
	default:
		return
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || percent <= 0 || percent >= 100 {
		delete(p.seen, key)
		return
	}
	all := p.seen[key]
	if n := len(all); n > 0 && percent < all[n-1].percent {
		all = nil // it was begun again
	}
	for len(all) > 1 && now.Sub(all[0].at) > paceFor {
		all = all[1:]
	}
	p.seen[key] = append(all, sample{now, percent})
}

// speeds returns the speeds in percent per second.
func (p *pace) speeds(now time.Time) map[string]float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]float64{}
	for key, all := range p.seen {
		first, last := all[0], all[len(all)-1]
		if took := last.at.Sub(first.at).Seconds(); took > 0 && last.percent > first.percent && now.Sub(last.at) < paceAfter {
			out[key] = (last.percent - first.percent) / took
		}
	}
	return out
}
