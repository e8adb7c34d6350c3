// Package view decides what the page shows: pure functions from objects of a cluster to values that templates write. It answers no
// question about a volume or a machine itself; those answers are internal/virtctl/status's, so that the page, virtctl volumes and
// virtctl vm status cannot say different things. It does not know HTML, and it has no clock: times are shown as they pass by the page.
package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backup "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshot "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/status"
)

// Objects are the objects that the views are made from.
type Objects struct {
	status.Objects
	Nodes      []*corev1.Node
	Classes    []*storagev1.StorageClass
	Profiles   []*cdiv1.StorageProfile
	Capacities []*storagev1.CSIStorageCapacity
	Images     []*cdiv1.DataSource
	Crons      []*cdiv1.DataImportCron
	Snapshots  []*snapshot.VirtualMachineSnapshot
	Restores   []*snapshot.VirtualMachineRestore
	Backups    []*backup.VirtualMachineBackup
	Trackers   []*backup.VirtualMachineBackupTracker
	Schedules  []*accessv1.MachineSchedule
	// Speeds are how fast volumes are filled, in percent for each second, by namespace/name.
	Speeds map[string]float64
	// Measured is the use of pools, by PoolKey; empty for a user who may not ask.
	Measured map[string]Measure
	// Missing are kinds that the person may not read.
	Missing []string
	// Lost is why the cluster cannot be reached; empty: it can.
	Lost string
}

// Tone says how a text is to look.
type Tone string

// The tones. A word is always beside a colour.
const (
	Good    Tone = "good"
	Busy    Tone = "busy"    // something is being done
	Waiting Tone = "waiting" // something else has to happen first
	Bad     Tone = "bad"     // a person should look
	Off     Tone = "off"
)

// Disk is a volume as it is shown.
type Disk struct {
	Namespace, Name string
	Label           string // what its machine calls it
	Kind            string
	Machines        []string
	Phase           string
	Tone            Tone
	Why             string
	Since           time.Time
	Class, Size     string
	Node            string
	Percent         float64 // how much of its data is there; only if it is being filled
	Filling         bool
	Speed           string // like "118 MB/s, 12 s left"; empty if it is not known
	Retries         int32
	Held            bool // it waits for its first consumer
	Uploading       bool // it takes an upload
}

// ID is one that no other disk has.
func (d Disk) ID() string { return "disk/" + status.Key(d.Namespace, d.Name) }

// Text returns what a person may look for.
func (d Disk) Text() string {
	return strings.Join(append([]string{d.Namespace, d.Name, d.Phase, d.Node, d.Class}, d.Machines...), " ")
}

// Disks returns all disks, sorted by name.
func (o *Objects) Disks() []Disk {
	restarts := map[string]*cdiv1.DataVolume{}
	for _, v := range o.Volumes {
		restarts[status.Key(v.Namespace, v.Name)] = v
	}
	list := o.List()
	out := make([]Disk, 0, len(list))
	for _, v := range list {
		out = append(out, o.disk(v, restarts[status.Key(v.Namespace, v.Name)]))
	}
	return out
}

func (o *Objects) disk(v status.Volume, volume *cdiv1.DataVolume) Disk {
	d := Disk{
		Namespace: v.Namespace, Name: v.Name, Kind: v.Kind, Machines: v.Machines, Phase: v.Phase, Why: v.Why, Class: v.Class, Size: v.Size,
		Node: v.Node,
	}
	if v.Since != nil {
		d.Since = *v.Since
	}
	d.Tone = toneOfVolume(v.Phase)
	d.Held = slices.ContainsFunc(strings.Fields(v.Phase), held)
	d.Uploading = strings.Contains(v.Phase, string(cdiv1.UploadReady))
	if volume != nil {
		d.Retries = volume.Status.RestartCount
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(v.Progress, "%"), 64)
	if err == nil && d.Tone != Good {
		d.Filling, d.Percent = true, min(max(percent, 0), 100)
		d.Speed = speed(o.Speeds[status.Key(v.Namespace, v.Name)], d.Percent, v.Size)
	}
	return d
}

func held(phase string) bool {
	return phase == string(cdiv1.WaitForFirstConsumer) || phase == string(cdiv1.PendingPopulation)
}

// speed returns how fast a disk is filled and how long the rest takes.
func speed(each, percent float64, size string) string {
	if each <= 0 {
		return ""
	}
	left := time.Duration((100 - percent) / each * float64(time.Second)).Round(time.Second)
	text := left.String() + " left"
	if q, err := resource.ParseQuantity(size); err == nil {
		text = fmt.Sprintf("%.0f MB/s, %s", each/100*float64(q.Value())/1e6, text)
	}
	return text
}

// toneOfVolume returns the look of the words that status has for a volume or a claim: "Succeeded", "Pending ImportInProgress".
func toneOfVolume(phase string) Tone {
	words := strings.Fields(phase)
	switch {
	case len(words) == 0:
		return Off
	case slices.Contains(words, string(cdiv1.Failed)), slices.Contains(words, "Lost"), slices.Contains(words, "not"):
		return Bad
	case slices.ContainsFunc(words, held), slices.Contains(words, string(cdiv1.Paused)):
		return Waiting
	case words[0] == string(cdiv1.Succeeded), words[0] == string(corev1.ClaimBound):
		return Good
	}
	return Busy
}

// toneOfMachine returns the look of a machine's one word.
func toneOfMachine(s kubevirt.PrintableStatus) Tone {
	switch s {
	case kubevirt.StatusRunning:
		return Good
	case kubevirt.StatusStopped, "":
		return Off
	case kubevirt.StatusProvisioning, kubevirt.StatusStarting, kubevirt.StatusStopping, kubevirt.StatusTerminating:
		return Busy
	case kubevirt.StatusWaitingForVolumeBinding, kubevirt.StatusPaused, kubevirt.StatusUnknown:
		return Waiting
	case kubevirt.StatusCrashLoopBackOff, kubevirt.StatusUnschedulable, kubevirt.StatusErrImagePull, kubevirt.StatusImagePullBackOff,
		kubevirt.StatusPvcNotFound, kubevirt.StatusDataVolumeError:
		return Bad
	}
	if strings.HasPrefix(string(s), "Err") {
		return Bad
	}
	return Busy // a value of a later version
}

// Machine is a machine as it is shown in a column.
type Machine struct {
	Namespace, Name, Status string
	Tone                    Tone
	Why                     string
	Since                   time.Time
	Node                    string
	Disks                   []Disk
}

// ID is one that no other machine has.
func (m Machine) ID() string { return "machine/" + status.Key(m.Namespace, m.Name) }

// Text returns what a person may look for.
func (m Machine) Text() string {
	return strings.Join([]string{m.Namespace, m.Name, m.Status, m.Node}, " ")
}

// machines returns all of them, with their disks out of those.
func (o *Objects) machines(disks map[string]Disk) []Machine {
	instances := map[string]*kubevirt.VirtualMachineInstance{}
	for _, i := range o.Instances {
		instances[status.Key(i.Namespace, i.Name)] = i
	}
	out := make([]Machine, 0, len(o.Machines))
	for _, vm := range o.Machines {
		i := instances[status.Key(vm.Namespace, vm.Name)]
		said := (&status.Seen{Machine: vm, Instance: i}).Tree()
		m := Machine{
			Namespace: vm.Namespace, Name: vm.Name, Status: cmp.Or(said.Phase, "not looked at yet"), Tone: toneOfMachine(vm.Status.PrintableStatus),
			Why: said.Why, Since: said.Since, Node: said.Where,
		}
		for _, d := range kube.Disks(vm, i) {
			disk, found := disks[status.Key(vm.Namespace, d.Claim)]
			if !found {
				disk = Disk{Namespace: vm.Namespace, Name: d.Claim, Phase: "not there", Tone: Bad}
			}
			disk.Label = d.Name
			m.Disks = append(m.Disks, disk)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out
}
