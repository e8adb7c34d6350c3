package snapshotcontent

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// Moment returns when the last of the volumes was cut.
func (s *Snapshot) Moment() *metav1.Time {
	var last *metav1.Time
	if len(s.Parts) == 0 && s.Content != nil { // it has the machine alone
		return &s.Content.CreationTimestamp
	}
	for _, p := range s.Parts {
		if t := p.Moment(); t != nil && (last == nil || last.Before(t)) {
			last = t
		}
	}
	return last
}

// Moment returns when the volume was cut; nil if it was not.
func (p Part) Moment() *metav1.Time {
	if p.Taken == nil {
		return nil
	}
	return volumesnapshot.Cut(p.Taken)
}

// Without returns the machine's volumes that are in no part.
func (s *Snapshot) Without(volumes []kubevirt.Volume) []string {
	var out []string
	for _, v := range volumes {
		if !s.Has(v.Name) {
			out = append(out, v.Name)
		}
	}
	return out
}

// Has reports whether a volume is in a part.
func (s *Snapshot) Has(volume string) bool {
	for _, p := range s.Parts {
		if p.Volume == volume {
			return true
		}
	}
	return false
}

// Open returns the parts that are not usable, with what the storage says.
func (s *Snapshot) Open() string {
	var out []string
	for _, p := range s.Parts {
		if p.Situation() == snapshot.Usable {
			continue
		}
		text := fmt.Sprintf("VolumeSnapshot %s of volume %s is %s", p.Name, p.Volume, p.Situation())
		if t := p.Trouble(); t != "" {
			text += ": " + t
		}
		out = append(out, text)
	}
	if len(out) == 0 && s.Late() {
		return "the deadline has passed"
	}
	return strings.Join(out, "; ")
}
