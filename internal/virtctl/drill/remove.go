package drill

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Name makes the name of a copy of a machine. It is short enough to be the value of a label.
func Name(machine string) string {
	return "drill-" + strings.Trim(machine[:min(len(machine), 32)], ".-") + "-" + rand.String(5)
}

// Mark gives the object of a drill its label, and the annotation that says which machine it is about.
func Mark(m *metav1.ObjectMeta, name, machine string) {
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Labels[names.Drill], m.Annotations[names.DrillOf] = name, machine
}

// Sweep removes what drills of a machine left that were killed: copies in one namespace, exports in the other. A drill of the machine that still
// runs loses its copy, and says so.
func Sweep(ctx context.Context, copies, exports *kube.Client, machine string, said io.Writer) error {
	all, err := kube.Machines.Labelled(ctx, copies, names.Drill)
	if err != nil {
		return err
	}
	for i := range all {
		if vm := &all[i]; vm.Labels[names.Drill] == vm.Name && vm.Annotations[names.DrillOf] == machine {
			_, _ = fmt.Fprintf(said, "Removing %s, which an earlier drill left\n", vm.Name) // the terminal was closed
			if err := Remove(ctx, copies, vm.Name); err != nil {
				return err
			}
		}
	}
	served, err := kube.Exports.Labelled(ctx, exports, names.Drill)
	if err != nil {
		return err
	}
	for i := range served {
		if e := &served[i]; e.Annotations[names.DrillOf] == machine {
			if err := kube.Exports.Remove(ctx, exports, e.Name, e.UID); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove deletes the copy of that name, if it is one, and waits until everything that belongs to it is gone. It may be repeated.
func Remove(ctx context.Context, c *kube.Client, name string) error {
	all, err := kube.Machines.Labelled(ctx, c, names.Drill+"="+name)
	if err != nil {
		return err
	}
	for i := range all {
		if vm := &all[i]; vm.Name == name {
			if err := kube.Machines.Remove(ctx, c, name, vm.UID); err != nil {
				return err
			}
		}
	}
	r := remains{name: name, claims: map[string]bool{}}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		left, err := r.list(ctx, c)
		if err == nil && len(left) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if len(left) > 0 {
				err = fmt.Errorf("still there: %s", strings.Join(left, ", "))
			}
			return err
		}
	}
}

// remains is what there is of a copy: what belongs to it goes after it.
type remains struct {
	name   string
	claims map[string]bool // of the disks that were seen
}

// list lists what there still is.
func (r *remains) list(ctx context.Context, c *kube.Client) ([]string, error) {
	var left []string
	selector := names.Drill + "=" + r.name
	vms, err := kube.Machines.Labelled(ctx, c, selector)
	if err != nil {
		return nil, err
	}
	for i := range vms {
		if vms[i].Name == r.name { // a clone of it is not it
			left = append(left, "VirtualMachine "+r.name)
		}
	}
	disks, err := kube.DataVolumes.Labelled(ctx, c, selector)
	if err != nil {
		return nil, err
	}
	for i := range disks {
		if strings.HasPrefix(disks[i].Name, r.name+"-") {
			left = append(left, "DataVolume "+disks[i].Name)
			r.claims[disks[i].Name] = true
		}
	}
	sources, err := kube.BackupSources.Labelled(ctx, c, selector)
	if err != nil {
		return nil, err
	}
	for i := range sources {
		left = append(left, accessv1.VolumeBackupSourceKind+" "+sources[i].Name)
		r.claims[sources[i].Name] = true
	}
	for name := range r.claims {
		_, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			left = append(left, "PersistentVolumeClaim "+name)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("read claim %s: %w", name, err)
		}
	}
	slices.Sort(left)
	return left, nil
}

// ExportLabels are the label and the annotation of a drill's export.
func ExportLabels(name, machine string) (labels, annotations map[string]string) {
	var m metav1.ObjectMeta
	Mark(&m, name, machine)
	return m.Labels, m.Annotations
}
