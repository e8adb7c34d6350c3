package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherpod"
)

// copyStatus returns the status of a volume's copy; nil if it has none, or none yet.
func copyStatus(s *observed.Instance, v kubevirt.Volume) *kubevirt.CopyStatus {
	c := v.Copied()
	if c == nil || !s.MakesCopies() {
		return nil
	}
	out := &kubevirt.CopyStatus{Mode: c.Mode, Medium: mediumOf(s.Launcher, v.Name), Reason: s.CopyPlan(v.Name, c).Reason}
	said, word := s.Returns.Copies[v.Name]
	if word {
		const unit = 1 << 20 // finer would be a new status every time
		out.Stored = resource.NewQuantity((said.Stored+unit-1)/unit*unit, resource.BinarySI)
	}
	out.Keep = keepStatus(s, v.Name)
	switch {
	case c.Mode == kubevirt.CopyOnWrite:
	case out.Reason == machine.CopyIndependent:
		out.Progress = "100%"
	case said.Total > 0:
		out.Progress = fmt.Sprintf("%d%%", min(said.Done*100/said.Total, 99))
	}
	return out
}

// mediumOf returns the storage of a volume's copy.
func mediumOf(launcher *corev1.Pod, volume string) string {
	return cmp.Or(launcherpod.Machine(launcher).Media[volume], "node")
}

// WithCopies adds the status of copies to the volumes' status, and entries for volumes that have only a copy.
func WithCopies(s *observed.Instance, all []kubevirt.VolumeStatus) []kubevirt.VolumeStatus {
	for _, v := range s.Object.Spec.Volumes {
		c := copyStatus(s, v)
		if c == nil {
			continue
		}
		at := slices.IndexFunc(all, func(x kubevirt.VolumeStatus) bool { return x.Name == v.Name })
		if at < 0 {
			at = len(all)
			all = append(all, kubevirt.VolumeStatus{Name: v.Name})
		}
		said := s.Returns.Copies[v.Name]
		all[at].Copy, all[at].Size = c, said.Size
		if said.Alone != "" && all[at].Message == "" {
			all[at].Message = aloneText(said.Alone)
		}
	}
	return all
}

// copyText is a copy in words.
func copyText(volume string, c *kubevirt.CopyStatus) string {
	text := fmt.Sprintf("volume %s: %s on %s", volume, c.Mode, c.Medium)
	if c.Stored != nil {
		text += fmt.Sprintf(", %s stored", c.Stored)
	}
	if c.Progress != "" {
		text += ", " + c.Progress + " of its master"
	}
	return text
}

// independent is the condition of a machine with copies: whether it needs their masters.
func independent(s *observed.Instance) []kubevirt.Condition {
	c := kubevirt.Condition{Type: "CopiesIndependent", Status: corev1.ConditionTrue, Reason: machine.CopyIndependent}
	order := []string{machine.CopyIndependent, machine.CopyOnMaster, machine.CopyFilling, machine.CopyCloning}
	var texts []string
	for _, v := range s.Object.Spec.Volumes {
		if status := copyStatus(s, v); status != nil {
			texts = append(texts, copyText(v.Name, status))
			if slices.Index(order, status.Reason) > slices.Index(order, c.Reason) {
				c.Status, c.Reason = corev1.ConditionFalse, status.Reason
			}
		}
	}
	if len(texts) == 0 {
		return nil
	}
	c.Message = strings.Join(texts, "; ")
	return []kubevirt.Condition{c}
}

// cloning describes the progress of the clones that the guest waits for; empty if it waits for none.
func cloning(s *observed.Instance) string {
	var texts []string
	for _, v := range s.Object.Spec.Volumes {
		if c := copyStatus(s, v); c != nil && c.Reason == machine.CopyCloning {
			texts = append(texts, copyText(v.Name, c))
		}
	}
	return strings.Join(texts, "; ")
}

// Intervals at which a launcher is asked about copies: while data is copied, and otherwise.
const (
	fillingAgain = 3 * time.Second
	storedAgain  = 15 * time.Second
)

// copiesAgain is when to ask about copies next; 0 if there are none.
func copiesAgain(s *observed.Instance) time.Duration {
	again := time.Duration(0)
	for _, v := range s.Object.Spec.Volumes {
		switch c := copyStatus(s, v); {
		case c == nil:
		case c.Reason == machine.CopyFilling || c.Reason == machine.CopyCloning:
			return fillingAgain
		default:
			again = storedAgain
		}
	}
	return again
}
