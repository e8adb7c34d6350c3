// Package restore makes a machine of a backup, with the rights of the user who asks for it: it reads the manifest in a set of backups, plans the objects,
// has everything checked that can be, and makes them. Nothing of the machine that was backed up is touched.
//
// What a manifest says comes from all who can write to the set. A machine that would reach for more than its own disks is refused, unless the
// user says that the set is trusted.
//
// It does not read disks: the workers of the DataVolumes that it makes do.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/virtctl/drill"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/vmexport"
)

// Options are the flags.
type Options struct {
	Name string // of the machine that was backed up
	From string // CLAIM[/path], or a URL
	// FromNamespace is the namespace of the claim; empty: that of the machine.
	FromNamespace string
	At            string // the checkpoint; empty: the newest
	As            string // the name of the machine that is made; empty: Name
	Class         string // storage class of the disks; empty: those of the machine that was backed up
	Addresses     bool   // new hardware addresses
	Start, Early  bool
	Trust         bool
	DryRun        bool
	// Print gets the objects instead of the cluster.
	Print func(objects []any) error
	// SecretRef and CertConfigMap are for a URL.
	SecretRef, CertConfigMap string
	Bucket                   string // s3 or gcs, if an http or https URL leads to a bucket; empty: to a web server
	Wait, Keep               time.Duration
	// Direct reaches the export by its Service, from a pod of the cluster.
	Direct bool
	drill  string // the name of the copy, if it is one for a drill
}

// target is the name of the machine that is made.
func (o *Options) target() string {
	if o.drill != "" {
		return o.drill
	}
	if o.As != "" {
		return o.As
	}
	return o.Name
}

// List shows the backups of a set.
func List(ctx context.Context, c *kube.Client, o Options, out, said io.Writer) error {
	return withSet(ctx, c, o, said, func(s *set) error {
		all, err := s.list(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		_, _ = fmt.Fprintln(w, "CHECKPOINT\tCREATED\tMADE ON\tDISKS") // the terminal was closed
		for _, m := range all {
			parent, disks := "-", []string{}
			if m.Parent != nil {
				parent = m.Parent.Checkpoint
			}
			for _, d := range m.Disks {
				disks = append(disks, d.Name)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.Checkpoint, m.Created.UTC().Format(time.RFC3339), parent, strings.Join(disks, ","))
		}
		return w.Flush()
	})
}

// Run makes the machine.
func Run(ctx context.Context, c *kube.Client, o Options, said io.Writer) error {
	return withSet(ctx, c, o, said, func(s *set) error {
		p, err := prepare(ctx, s, o, c.Namespace)
		if err != nil {
			return err
		}
		if err := check(ctx, c, p); err != nil {
			return fmt.Errorf("nothing was made: %w", err)
		}
		switch {
		case o.Print != nil:
			return o.Print(p.objects())
		case o.DryRun:
			_, _ = fmt.Fprintf(said, "VirtualMachine %s would be made of backup %s\n", p.machine.Name, p.moment.Checkpoint)
			return nil
		}
		if _, err := create(ctx, c, p); err != nil {
			return err
		}
		s.keep = true
		_, _ = fmt.Fprintf(said, "VirtualMachine %s is made of backup %s; virtctl vm status %s shows its disks\n", p.machine.Name, p.moment.Checkpoint, p.machine.Name)
		return nil
	})
}

// prepare reads the manifest and plans the machine. Every chain is followed down to the backup that has the whole disk.
func prepare(ctx context.Context, s *set, o Options, namespace string) (*plan, error) {
	m, digest, err := s.manifest(ctx, o.At)
	if err != nil {
		return nil, err
	}
	p, err := planOf(m, digest, o, s.source())
	if err != nil {
		return nil, err
	}
	p.machine.Namespace = namespace
	for _, d := range p.disks {
		if err := backup.Check(ctx, s.files, backup.Which{Checkpoint: m.Checkpoint, Disk: d.volume, Manifest: digest}); err != nil {
			return nil, fmt.Errorf("disk %s cannot be restored: %w", d.volume, err)
		}
	}
	p.aids = s.aids
	return p, nil
}

// create makes the machine, and then what its disks are made of, which goes with the machine. If that cannot be made, the machine goes again.
func create(ctx context.Context, c *kube.Client, p *plan) (*kubevirt.VirtualMachine, error) {
	made, err := kube.Machines.Create(ctx, c, p.machine)
	if err != nil {
		return nil, err
	}
	owner := metav1.OwnerReference{APIVersion: kube.Machines.GVK().GroupVersion().String(), Kind: kube.Machines.GVK().Kind, Name: made.Name, UID: made.UID}
	err = p.makeRest(ctx, c, owner)
	if err == nil {
		return made, nil
	}
	aside, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return nil, errors.Join(err, kube.Machines.Remove(aside, c, made.Name, made.UID))
}

// withSet opens the set of backups.
func withSet(ctx context.Context, c *kube.Client, o Options, said io.Writer, use func(*set) error) error {
	if strings.Contains(o.From, "://") {
		s, done, err := atServer(ctx, c, o)
		if err != nil {
			return err
		}
		defer done()
		return use(s)
	}
	claim, path, _ := strings.Cut(o.From, "/")
	space := o.FromNamespace
	if space == "" {
		space = c.Namespace
	}
	abroad := space != c.Namespace
	e := vmexport.Options{Name: "restore-" + rand.String(8), Wait: o.Wait, Keep: true, TTL: o.Keep, Direct: o.Direct}
	if o.drill != "" {
		e.Labels, e.Annotations = drill.ExportLabels(o.drill, o.Name)
	}
	from := c.In(space)
	var s *set
	err := vmexport.OfClaim(ctx, from, e, claim, io.Discard, func(f *vmexport.Files) error {
		s = inClaim(claim, path, f)
		if abroad {
			s.serve(e.Name, f)
		}
		return use(s)
	})
	if s == nil || !s.keep || !abroad { // a set of another namespace is read through its export until the disks are full
		aside, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, vmexport.Delete(aside, from, e.Name, io.Discard))
	} else {
		_, _ = fmt.Fprintf(said, "VirtualMachineExport %s/%s serves the backups for %s\n", space, e.Name, o.Keep)
	}
	return err
}
