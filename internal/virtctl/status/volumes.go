package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Volume is one disk: where it is, how full, and what it waits for.
type Volume struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`               // DataVolume or PersistentVolumeClaim
	Machines  []string `json:"machines,omitempty"` // that have it among their volumes
	Class     string   `json:"class,omitempty"`
	// Size is the claim's capacity, or its request if it has none yet. Used is the space that is used on the volume; both are known
	// only while a pod has the volume, and to those who may ask the node.
	Size     string     `json:"size,omitempty"`
	Used     *int64     `json:"usedBytes,omitempty"`
	Capacity *int64     `json:"capacityBytes,omitempty"`
	Node     string     `json:"node,omitempty"`
	Phase    string     `json:"phase"`
	Progress string     `json:"progress,omitempty"`
	Why      string     `json:"why,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
}

// Volumes returns the disks of a namespace, or of all if the client has none, sorted by name.
func Volumes(ctx context.Context, c *kube.Client) ([]Volume, error) {
	o := &Objects{}
	claims, err := kube.Claims(ctx, c)
	if err != nil {
		return nil, err
	}
	o.Claims = pointers(claims)
	volumes, err := kube.DataVolumes.List(ctx, c)
	if err != nil && !apierrors.IsNotFound(err) { // a cluster may have no data side
		return nil, err
	}
	o.Volumes = pointers(volumes)
	vms, err := kube.Machines.List(ctx, c)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	o.Machines = pointers(vms)
	instances, err := kube.Instances.List(ctx, c)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	o.Instances = pointers(instances)
	if o.PVs, err = places(ctx, c); err != nil {
		return nil, err
	}
	out, rooms := o.List(), rooms{}
	used := o.usedBy()
	for i := range out {
		rooms.measure(ctx, c, used[Key(out[i].Namespace, out[i].Name)], &out[i])
	}
	return out, nil
}

func pointers[T any](values []T) []*T {
	out := make([]*T, len(values))
	for i := range values {
		out[i] = &values[i]
	}
	return out
}

// ours reports whether a claim that is filled by us without a DataVolume.
func ours(c *corev1.PersistentVolumeClaim) bool {
	_, filled := c.Annotations[names.State]
	_, known := c.Annotations[annProgress]
	return filled || known
}

// places returns the volumes of the cluster by name; none for those who may not read them.
func places(ctx context.Context, c *kube.Client) (map[string]*corev1.PersistentVolume, error) {
	list, err := c.Core.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	out := map[string]*corev1.PersistentVolume{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out, nil
}

// row returns the disk in the words of its parts: what the tree of a machine says of it.
func (d *Disk) row() Volume {
	s := &Seen{Machine: &kubevirt.VirtualMachine{}}
	claim := s.claim(*d)
	part, v := claim, Volume{Kind: "PersistentVolumeClaim", Name: d.Claim, Node: claim.Where}
	if d.Volume != nil {
		part = s.disk(*d).Parts[0]
		v.Kind, v.Namespace = "DataVolume", d.Volume.Namespace
	}
	v.Phase, v.Progress, v.Why = strings.Join(strings.Fields(part.Phase), " "), part.Progress, part.Why
	if !part.Since.IsZero() {
		v.Since = &part.Since
	}
	if d.PVC == nil {
		return v
	}
	v.Namespace = d.PVC.Namespace
	if n := d.PVC.Annotations[names.SelectedNode]; v.Node == "" && d.PVC.Status.Phase != corev1.ClaimBound {
		v.Node = n
	}
	if class := d.PVC.Spec.StorageClassName; class != nil {
		v.Class = *class
	}
	size := d.PVC.Spec.Resources.Requests[corev1.ResourceStorage]
	if has, ok := d.PVC.Status.Capacity[corev1.ResourceStorage]; ok {
		size = has
	}
	v.Size = size.String()
	return v
}

// rooms is the answer of nodes about the volumes of their pods; each node is asked once.
type rooms map[string]map[string]room

type room struct{ used, capacity *int64 }

// measure finds how full a volume is, if its node may be asked.
func (r rooms) measure(ctx context.Context, c *kube.Client, on map[string]string, v *Volume) {
	for _, node := range on {
		if node == "" {
			continue
		}
		if r[node] == nil {
			r[node] = read(ctx, c, node)
		}
		if at, known := r[node][Key(v.Namespace, v.Name)]; known {
			v.Used, v.Capacity = at.used, at.capacity
			return
		}
	}
}

// read asks a node's kubelet. Most users may not, and then it is not known.
func read(ctx context.Context, c *kube.Client, node string) map[string]room {
	out := map[string]room{}
	text, err := c.Core.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("stats/summary").DoRaw(ctx)
	var said struct {
		Pods []struct {
			Volumes []struct {
				Used     *int64                            `json:"usedBytes"`
				Capacity *int64                            `json:"capacityBytes"`
				Claim    *struct{ Name, Namespace string } `json:"pvcRef"`
			} `json:"volume"`
		} `json:"pods"`
	}
	if err != nil || json.Unmarshal(text, &said) != nil {
		return out
	}
	for _, p := range said.Pods {
		for _, v := range p.Volumes {
			if v.Claim != nil && v.Used != nil {
				out[v.Claim.Namespace+"/"+v.Claim.Name] = room{v.Used, v.Capacity}
			}
		}
	}
	return out
}

// WriteVolumes writes a table for people.
func WriteVolumes(w io.Writer, volumes []Volume, namespaces bool, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "NAME\tMACHINE\tPHASE\tPROGRESS\tNODE\tCLASS\tSIZE\tUSED\tFOR\tWHY"
	if namespaces {
		head = "NAMESPACE\t" + head
	}
	_, _ = fmt.Fprintln(t, head)
	for _, v := range volumes {
		since := ""
		if v.Since != nil {
			since = age(now.Sub(*v.Since))
		}
		cells := []string{
			v.Name, strings.Join(v.Machines, ","), v.Phase, v.Progress, v.Node, v.Class, v.Size, v.full(), since, strings.ReplaceAll(v.Why, "\n", " "),
		}
		if namespaces {
			cells = append([]string{v.Namespace}, cells...)
		}
		for i := range cells[:len(cells)-1] {
			cells[i] = cmp.Or(cells[i], "-")
		}
		_, _ = fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return t.Flush()
}

// full returns how full it is.
func (v Volume) full() string {
	if v.Used == nil {
		return ""
	}
	text := resource.NewQuantity((*v.Used+1<<20-1)>>20<<20, resource.BinarySI).String()
	if v.Capacity != nil && *v.Capacity > 0 {
		text += fmt.Sprintf(" (%d%%)", *v.Used*100/(*v.Capacity))
	}
	return text
}
