package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/virtctl/status"
)

// Page holds the data of one machine's page.
type Page struct {
	Machine
	Addresses []string
	// What can be asked of it now.
	MayStart, MayStop, MayRestart, MayPause, MayUnpause, HasGuest bool
	// Moving: it is being migrated, to the node that is named.
	Moving   bool
	MovingTo string

	Tree      status.Node
	Steps     []Step
	Events    []Event
	Snapshots []Snapshot
	Schedules []Schedule
	Backups   []Backup
	Spare     []string // disks of the namespace that no machine has
}

// Step is one of a machine's steps.
type Step struct {
	What    string
	Of      string // the disk it is about, if it is about one
	At      time.Time
	Until   time.Time // zero: it is the one under way
	Detail  string
	Percent float64
	Filling bool
	Tone    Tone
}

// Took returns how long it was.
func (s Step) Took() string {
	if s.Until.IsZero() {
		return ""
	}
	return s.Until.Sub(s.At).Round(time.Second).String()
}

// Event is an event of the machine or a part of it.
type Event struct {
	At           time.Time
	Warn         bool
	Reason, Text string
	Of           string
	Count        int32
}

// Snapshot is a snapshot of the machine, and what is being done with it.
type Snapshot struct {
	Name, Phase, Why string
	Tone             Tone
	At               time.Time
	Ready            bool
	Restoring        string // the restore that is under way
}

// Backup is a backup of the machine.
type Backup struct {
	Name, Checkpoint, Kind, Why string
	Claim                       string // that it is in
	Tone                        Tone
	At                          time.Time
	As                          string // the machine that would be made of it; empty: none can be
}

// Schedule is a schedule of backups or snapshots that the machine is in.
type Schedule struct {
	Name, What, When string
	Why              string
	Tone             Tone
	Last, Next       time.Time // zero: there is none
	Kept             int32
}

// Page returns a machine; nil if there is none of that name. Events are those of its namespace.
func (o *Objects) Page(namespace, name string, events []*corev1.Event) *Page {
	seen := o.Machine(namespace, name)
	if seen == nil {
		return nil
	}
	only := *o
	only.Machines, only.Instances = []*kubevirt.VirtualMachine{seen.Machine}, nil
	if seen.Instance != nil {
		only.Instances = []*kubevirt.VirtualMachineInstance{seen.Instance}
	}
	disks := map[string]Disk{}
	p := &Page{Tree: seen.Tree()}
	for _, d := range o.Disks() {
		if d.Namespace != namespace {
			continue
		}
		disks[status.Key(d.Namespace, d.Name)] = d
		if len(d.Machines) == 0 {
			p.Spare = append(p.Spare, d.Name)
		}
	}
	p.Machine = only.machines(disks)[0]
	i := seen.Instance
	p.HasGuest = i != nil && i.Status.Phase == kubevirt.PhaseRunning
	paused := seen.Machine.Status.PrintableStatus == kubevirt.StatusPaused
	p.MayStart = i == nil && p.Tone == Off
	p.MayStop, p.MayRestart = !p.MayStart, i != nil
	p.MayPause, p.MayUnpause = p.HasGuest && !paused, p.HasGuest && paused
	if i != nil {
		if m := i.Status.MigrationState; m != nil && !m.Completed {
			p.Moving, p.MovingTo = true, m.TargetNode
		}
		for _, n := range i.Status.Interfaces {
			if n.IP != "" {
				p.Addresses = append(p.Addresses, n.IP)
			}
		}
	}
	own := ownEvents(seen, events)
	p.Steps = steps(seen, p.Disks, own)
	p.Events = shown(own)
	p.Snapshots = o.snapshots(namespace, name)
	p.Schedules = o.schedules(namespace, seen.Machine.UID)
	p.Backups = o.backups(namespace, name)
	return p
}

// ownEvents returns those of the machine, its instance, its disks and its pods, the oldest first.
func ownEvents(s *status.Seen, events []*corev1.Event) []*corev1.Event {
	about := map[string]bool{"VirtualMachine/" + s.Machine.Name: true, "VirtualMachineInstance/" + s.Machine.Name: true}
	for _, d := range s.Disks {
		about["DataVolume/"+d.Claim], about["PersistentVolumeClaim/"+d.Claim] = true, true
	}
	launcher := "Pod/virt-launcher-" + s.Machine.Name + "-"
	var out []*corev1.Event
	for _, e := range events {
		of := e.InvolvedObject.Kind + "/" + e.InvolvedObject.Name
		if e.Namespace == s.Machine.Namespace && (about[of] || strings.HasPrefix(of, launcher)) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b *corev1.Event) int {
		return cmp.Or(told(a).Compare(told(b)), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// told returns when an event was last told.
func told(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// mostEvents is how many events of a machine are shown.
const mostEvents = 40

func shown(events []*corev1.Event) []Event {
	out := make([]Event, 0, len(events))
	for _, e := range slices.Backward(events) {
		if len(out) == mostEvents {
			break
		}
		count := e.Count
		if e.Series != nil {
			count = e.Series.Count
		}
		out = append(out, Event{
			At: told(e), Warn: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Text: e.Message, Count: count,
			Of: e.InvolvedObject.Kind + " " + e.InvolvedObject.Name,
		})
	}
	return out
}

// steps returns what happened to the machine, in the order in which it did, and what happens now. Times are those that objects
// and events have: events are gone after an hour, and then only what objects remember is left.
func steps(s *status.Seen, disks []Disk, events []*corev1.Event) []Step {
	all := []Step{{What: "created", At: s.Machine.CreationTimestamp.Time, Tone: Good}}
	for _, d := range s.Disks {
		all = append(all, diskSteps(d, events)...)
	}
	if s.Instance != nil {
		for _, t := range s.Instance.Status.PhaseTransitionTimestamps {
			tone := Good
			if t.Phase == kubevirt.PhaseFailed {
				tone = Bad
			}
			all = append(all, Step{What: words[string(t.Phase)], At: t.PhaseTransitionTimestamp.Time, Tone: tone})
		}
	}
	all = slices.DeleteFunc(all, func(s Step) bool {
		// What is filled may still be given to its claim, which is then said to be filled once more.
		again := s.What == words[string(cdiv1.Succeeded)] && slices.ContainsFunc(all, func(o Step) bool { return o.What == s.What && o.Of == s.Of && o.At.After(s.At) })
		return s.What == "" || s.At.IsZero() || again
	})
	slices.SortStableFunc(all, func(a, b Step) int { return a.At.Compare(b.At) })
	out := slices.CompactFunc(all, func(a, b Step) bool { return a.What == b.What && a.Of == b.Of })
	for i := range out {
		if i+1 < len(out) {
			out[i].Until = out[i+1].At
		}
	}
	last := &out[len(out)-1]
	for _, d := range disks { // what is filled now says how far it is
		if d.Filling {
			for i := range slices.Backward(out) {
				if out[i].Of == d.Label && out[i].What != words["made"] {
					out[i].Filling, out[i].Percent, out[i].Detail, out[i].Tone = true, d.Percent, d.Speed, Busy
					break
				}
			}
		}
	}
	tone := toneOfMachine(s.Machine.Status.PrintableStatus)
	last.Tone = tone
	return out
}

// diskSteps returns those of one disk.
func diskSteps(d status.Disk, events []*corev1.Event) []Step {
	var out []Step
	if d.PVC != nil {
		out = append(out, Step{What: words["made"], Of: d.Name, At: d.PVC.CreationTimestamp.Time, Tone: Good})
	}
	if d.Volume != nil {
		for _, c := range d.Volume.Status.Conditions {
			switch {
			case c.Type == cdiv1.DataVolumeBound && c.Status == corev1.ConditionTrue:
				out = append(out, Step{What: words["bound"], Of: d.Name, At: c.LastTransitionTime.Time, Tone: Good})
			case c.Type == cdiv1.DataVolumeReady && c.Status == corev1.ConditionTrue:
				out = append(out, Step{What: words[string(cdiv1.Succeeded)], Of: d.Name, At: c.LastTransitionTime.Time, Tone: Good})
			}
		}
	}
	for _, e := range events {
		if e.InvolvedObject.Name != d.Claim || e.InvolvedObject.Kind != "DataVolume" && e.InvolvedObject.Kind != "PersistentVolumeClaim" {
			continue
		}
		row := state.Of(state.Reason(e.Reason))
		if row.Phase == cdiv1.Unknown || row.Phase == cdiv1.Pending {
			continue // it only tells what was done, or that nothing is yet
		}
		tone := Good
		if row.Warn {
			tone = Bad
		}
		out = append(out, Step{What: words[string(row.Phase)], Of: d.Name, At: firstTold(e), Tone: tone})
	}
	// A disk and its claim tell the same step, each for itself, and steps of another disk may come between the two.
	slices.SortStableFunc(out, func(a, b Step) int { return a.At.Compare(b.At) })
	return slices.CompactFunc(out, func(a, b Step) bool { return a.What == b.What })
}

// firstTold returns when an event was told for the first time.
func firstTold(e *corev1.Event) time.Time {
	switch {
	case !e.FirstTimestamp.IsZero():
		return e.FirstTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// words are the page's names of phases. A phase that is not listed is not a step.
var words = map[string]string{
	"made": "disk asked for", "bound": "bound",
	string(cdiv1.WaitForFirstConsumer): "held until a node is chosen", string(cdiv1.PendingPopulation): "held until a node is chosen",
	string(cdiv1.ImportScheduled): "import about to begin", string(cdiv1.ImportInProgress): "importing",
	string(cdiv1.CloneScheduled): "clone about to begin", string(cdiv1.CloneInProgress): "cloning",
	string(cdiv1.SnapshotForSmartCloneInProgress): "cloning", string(cdiv1.CloneFromSnapshotSourceInProgress): "cloning",
	string(cdiv1.CSICloneInProgress): "cloning",
	string(cdiv1.UploadScheduled):    "upload about to begin", string(cdiv1.UploadReady): "takes an upload",
	string(cdiv1.RebindInProgress): "given its volume", string(cdiv1.Succeeded): "filled", string(cdiv1.Failed): "failed",
	string(kubevirt.PhasePending): "asked to run", string(kubevirt.PhaseScheduling): "looking for a node",
	string(kubevirt.PhaseScheduled): "starting on its node", string(kubevirt.PhaseRunning): "running",
}
