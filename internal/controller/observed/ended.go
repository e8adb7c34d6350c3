package observed

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
)

// An instance is one run: its guest is started once. A launcher can be deleted, so both facts are recorded on the instance: that the
// guest may have started, before the launcher is told to go; and how it ended, before the launcher loses its finalizer. Both name the
// instance by its UID: an instance that is restored from a backup with its annotations has not run.
const (
	AnnStarted = "berth.dev/started" // the UID of the instance
	AnnEnded   = "berth.dev/ended"   // an ending, as JSON
)

// Ending says how an instance's guest ended.
type Ending struct {
	Instance types.UID          `json:"instance"`
	Node     string             `json:"node,omitempty"` // where it ran last
	Well     bool               `json:"well,omitempty"`
	Report   launcherapi.Report `json:"report"`
	// At is when it ended by itself; nil if its launcher was deleted or its node is gone: the next run need not wait then.
	At *metav1.Time `json:"at,omitempty"`
}

// RecordedEnd reads the record of how the guest ended; nil if it has not, or if there is no record.
func RecordedEnd(i *kubevirt.VirtualMachineInstance) *Ending {
	var e Ending
	if json.Unmarshal([]byte(i.Annotations[AnnEnded]), &e) != nil || e.Instance != i.UID {
		return nil
	}
	return &e
}

// RecordedStart reports whether it is recorded that the guest may have started.
func RecordedStart(i *kubevirt.VirtualMachineInstance) bool {
	return i.Annotations[AnnStarted] == string(i.UID)
}

// observePast finds out whether an instance without a launcher has had its guest.
func (r *Reader) observePast(ctx context.Context, s *Instance) error {
	if s.Launcher != nil {
		return nil
	}
	if s.Past = RecordedEnd(s.Object); s.Past != nil || !RecordedStart(s.Object) {
		return nil
	}
	all, err := launcherpod.Of(ctx, cluster.Reads(r.Live), s.Object) // the cache may only have the instance so far
	if err != nil {
		return err
	}
	if launcherpod.Present(all) != nil {
		return Outdated(s.Object)
	}
	s.Past = &Ending{Instance: s.Object.UID, Report: launcherapi.Report{End: launcherapi.Crashed,
		Detail: "its launcher's pod is gone, and nothing says how its guest ended"}}
	return nil
}

func (s *Instance) pastFact() machine.Past {
	switch {
	case s.Past == nil:
		return machine.NoPast
	case s.Past.Well:
		return machine.PastWell
	}
	return machine.PastBadly
}

// LastWords returns the last report about the end of the instance's guest.
func (s *Instance) LastWords() launcherapi.Report {
	switch {
	case s.Launcher != nil:
		return launcherpod.LastWords(s.Launcher)
	case s.Past != nil:
		return s.Past.Report
	}
	return launcherapi.Report{}
}

// EndedAt returns when the guest ended by itself; false if it did not.
func (s *Instance) EndedAt() (time.Time, bool) {
	switch {
	case s.Launcher != nil:
		return FinishedAt(s.Launcher), true
	case s.Past != nil && s.Past.At != nil:
		return s.Past.At.Time, true
	}
	return time.Time{}, false
}

// Outdated has an instance checked again whose pods and records the caches do not have yet as they are.
func Outdated(i *kubevirt.VirtualMachineInstance) error {
	return apierrors.NewConflict(schema.GroupResource{Group: kubevirt.GroupVersion.Group, Resource: "virtualmachineinstances"}, i.Name,
		fmt.Errorf("what is known about its guest is out of date"))
}
