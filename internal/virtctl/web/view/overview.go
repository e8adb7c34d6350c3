package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/berth-vm/berth/internal/usagetype"
	"github.com/berth-vm/berth/internal/virtctl/status"
)

// Overview is the first page: what waits, and what is where.
type Overview struct {
	Waits   []Wait
	More    int // that wait and are not among Waits
	Columns []Column
}

// Wait is an object that waits, and why.
type Wait struct {
	Kind, Namespace, Name string
	Phase, Why            string
	Tone                  Tone
	Since                 time.Time
	Disk                  *Disk // set for a disk
}

// ID returns an identifier that is unique among the waiting objects.
func (w Wait) ID() string { return "wait/" + w.Kind + "/" + w.Namespace + "/" + w.Name }

// Column is a node and what is on it. The one without a name has what is on none.
type Column struct {
	Name     string
	Note     string // what is unusual about the node
	Tone     Tone
	Pools    []Pool
	Machines []Machine
	Loose    []Disk // that no machine has
}

// Pool is the storage of one class on one node.
type Pool struct {
	Class    string
	Volumes  int
	Promised string // to volumes
	Free     string // what could still be promised; "" if none
	Percent  float64
	// Used is the used part of the pool; "" if there is none. Classes of one pool share it.
	Used, Capacity string
	UsedPercent    float64
}

// Measure is the use and the capacity of a pool, in bytes.
type Measure struct{ Used, Capacity int64 }

// PoolKey returns a pool among those that are measured: of a node, and of a usage type or none.
func PoolKey(node, usageType string) string { return node + "/" + usageType }

// mostWaits is the longest list that a person reads without searching.
const mostWaits = 30

// Overview returns the data of the overview page.
func (o *Objects) Overview() Overview {
	disks := o.Disks()
	byKey := make(map[string]Disk, len(disks))
	for _, d := range disks {
		byKey[d.Namespace+"/"+d.Name] = d
	}
	machines := o.machines(byKey)
	out := Overview{Columns: o.columns()}
	at := map[string]int{}
	for i, c := range out.Columns {
		at[c.Name] = i
	}
	none := at[""]
	for _, m := range machines {
		i, known := at[m.Node]
		if !known {
			i = none
		}
		out.Columns[i].Machines = append(out.Columns[i].Machines, m)
	}
	for _, d := range disks {
		if len(d.Machines) > 0 {
			continue
		}
		i, known := at[d.Node]
		if !known {
			i = none
		}
		out.Columns[i].Loose = append(out.Columns[i].Loose, d)
	}
	out.Waits, out.More = waits(machines, disks)
	return out
}

// waits returns what is not as it should be, the worst and then the oldest first.
func waits(machines []Machine, disks []Disk) ([]Wait, int) {
	var out []Wait
	for _, m := range machines {
		if m.Tone != Good && m.Tone != Off {
			out = append(out, Wait{Kind: "machine", Namespace: m.Namespace, Name: m.Name, Phase: m.Status, Why: m.Why, Tone: m.Tone, Since: m.Since})
		}
	}
	for _, d := range disks {
		if d.Tone != Good && d.Tone != Off {
			out = append(out, Wait{
				Kind: "disk", Namespace: d.Namespace, Name: d.Name, Phase: d.Phase, Why: d.Why, Tone: d.Tone, Since: d.Since, Disk: &d,
			})
		}
	}
	urgency := map[Tone]int{Bad: 0, Waiting: 1, Busy: 1}
	slices.SortStableFunc(out, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(urgency[a.Tone], urgency[b.Tone]), a.Since.Compare(b.Since), cmp.Compare(a.ID(), b.ID()))
	})
	if len(out) > mostWaits {
		return out[:mostWaits], len(out) - mostWaits
	}
	return out, 0
}

// columns returns the nodes, and last the one that is none.
func (o *Objects) columns() []Column {
	nodes := slices.SortedFunc(slices.Values(o.Nodes), func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	var out []Column
	shares := o.shares()
	for _, n := range nodes {
		c := Column{Name: n.Name, Tone: Good, Pools: o.pools(n, shares)}
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		switch {
		case !ready:
			c.Note, c.Tone = "not ready", Bad
		case n.Spec.Unschedulable:
			c.Note, c.Tone = "takes no more pods (cordoned)", Waiting
		}
		out = append(out, c)
	}
	if len(out) == 0 { // a person who may not read nodes still sees where machines say they are
		names := map[string]bool{}
		for _, i := range o.Instances {
			if i.Status.NodeName != "" {
				names[i.Status.NodeName] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			out = append(out, Column{Name: name})
		}
	}
	return append(out, Column{})
}

// NodeNames returns the nodes that the user may know.
func (o *Objects) NodeNames() []string {
	var out []string
	for _, c := range o.columns() {
		if c.Name != "" {
			out = append(out, c.Name)
		}
	}
	return out
}

// share is the space of a class on a node.
type share struct {
	volumes        int
	promised, free resource.Quantity
	says           bool // the driver reports what is free
}

// shares returns the classes of each node: what their volumes there were promised.
func (o *Objects) shares() map[string]map[string]*share {
	out := map[string]map[string]*share{}
	for _, v := range o.PVs {
		if at := status.Place(v); at != "" && v.Spec.StorageClassName != "" {
			s := of(out, at, v.Spec.StorageClassName)
			s.volumes++
			s.promised.Add(v.Spec.Capacity[corev1.ResourceStorage])
		}
	}
	return out
}

func of(all map[string]map[string]*share, node, class string) *share {
	if all[node] == nil {
		all[node] = map[string]*share{}
	}
	if all[node][class] == nil {
		all[node][class] = &share{}
	}
	return all[node][class]
}

// pools returns the classes that have volumes on a node, or say what they could still have there.
func (o *Objects) pools(n *corev1.Node, shares map[string]map[string]*share) []Pool {
	for _, c := range o.Capacities {
		selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
		if err != nil || c.NodeTopology == nil || c.Capacity == nil || !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		s := of(shares, n.Name, c.StorageClassName)
		s.free.Add(*c.Capacity)
		s.says = true
	}
	classes := map[string]*storagev1.StorageClass{}
	for _, c := range o.Classes {
		classes[c.Name] = c
	}
	var out []Pool
	for _, name := range slices.Sorted(maps.Keys(shares[n.Name])) {
		s := shares[n.Name][name]
		p := Pool{Class: name, Volumes: s.volumes, Promised: room(s.promised)}
		if s.says {
			p.Free = room(s.free)
			if all := s.promised.Value() + s.free.Value(); all > 0 {
				p.Percent = float64(s.promised.Value()) / float64(all) * 100
			}
		}
		if c := classes[name]; c != nil && c.Provisioner == usagetype.Driver {
			p.measure(o.Measured[PoolKey(n.Name, c.Parameters[usagetype.Parameter])])
		}
		out = append(out, p)
	}
	return out
}

func (p *Pool) measure(m Measure) {
	if m.Capacity > 0 {
		p.Used, p.Capacity = room(*resource.NewQuantity(m.Used, resource.BinarySI)), room(*resource.NewQuantity(m.Capacity, resource.BinarySI))
		p.UsedPercent = float64(m.Used) / float64(m.Capacity) * 100
	}
}

// room returns a size as people read it.
func room(q resource.Quantity) string {
	n := float64(q.Value())
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 1024 {
			return fmt.Sprintf("%.4g %s", n, unit)
		}
		n /= 1024
	}
	return fmt.Sprintf("%.4g TiB", n)
}
