package clonesource

import (
	"context"
	"fmt"
	"maps"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
)

// Break is why a DataSource leads to no claim or snapshot.
type Break int

// The breaks. A DataSource may stand for another one in its own namespace, and that one no further.
const (
	Whole     Break = iota
	Absent          // there is no such DataSource
	Elsewhere       // it stands for one of another namespace
	Itself          // it stands for itself
	TooFar          // it stands for one that stands for another
	Empty           // it says nothing
)

// End returns what a DataSource stands for in the end. next is the one it stands for; nil if it names none, or if that is not
// there.
func End(self, next *cdiv1.DataSource) (cdiv1.DataSourceSource, Break) {
	last := self.Spec.Source
	if ref := last.DataSource; ref != nil {
		switch {
		case orIn(&ref.Namespace, self.Namespace) != self.Namespace:
			return last, Elsewhere
		case ref.Name == self.Name:
			return last, Itself
		case next == nil:
			return last, Absent
		case next.Spec.Source.DataSource != nil:
			return last, TooFar
		}
		last = next.Spec.Source
	}
	switch { // a namespace that is not said is its own
	case last.PVC != nil:
		return cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: orIn(&last.PVC.Namespace, self.Namespace), Name: last.PVC.Name}}, Whole
	case last.Snapshot != nil:
		return cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: orIn(&last.Snapshot.Namespace, self.Namespace), Name: last.Snapshot.Name}}, Whole
	}
	return last, Empty
}

// Next returns the DataSource that another one stands for; nil if it names none that may be named, or if that is not there.
func Next(ctx context.Context, from Reader, self *cdiv1.DataSource) (*cdiv1.DataSource, error) {
	ref := self.Spec.Source.DataSource
	if ref == nil || orIn(&ref.Namespace, self.Namespace) != self.Namespace || ref.Name == self.Name {
		return nil, nil
	}
	var next cdiv1.DataSource
	if ok, err := from.Read(ctx, self.Namespace, ref.Name, &next); !ok || err != nil {
		return nil, err
	}
	return &next, nil
}

// Resolved is the source of a DataVolume, with references followed.
type Resolved struct {
	// Source is the source as a DataVolume would name it; nil: it is another populator's. For a reference to a missing object it is
	// the last one found.
	Source *cdiv1.DataVolumeSource
	// Lacks is why the reference leads nowhere; empty: it does not.
	Lacks string
	// Labels are the labels that the volume inherits from the DataSources on the way.
	Labels map[string]string
	// Backup is the disk of a backup that the reference leads to; nil if it leads to another source. Source is empty if Backup is set.
	Backup *Backup
}

// Resolve follows the references of a DataVolume of that namespace to what it is cloned from. Admission, the controllers and
// virtctl all ask it, so they agree.
func Resolve(ctx context.Context, from Reader, namespace string, spec *cdiv1.DataVolumeSpec) (Resolved, error) {
	r := Resolved{Source: spec.Source}
	if at, ok := OfSource(namespace, spec.Source); ok {
		r.Source = at.Source()
	}
	ref := spec.SourceRef
	if ref == nil {
		return r, nil
	}
	space := orIn(ref.Namespace, namespace)
	if ref.Kind == accessv1.VolumeBackupSourceKind {
		r.Source = &cdiv1.DataVolumeSource{}
		if space != namespace {
			r.Lacks = fmt.Sprintf("VolumeBackupSource %s/%s is in another namespace, and a worker mounts what it names; make one in namespace %s", space, ref.Name, namespace)
			return r, nil
		}
		var err error
		r.Backup, r.Lacks, err = FindBackup(ctx, from, space, ref.Name)
		return r, err
	}
	r.Source = At(Claim, space, ref.Name).Source()
	if ref.Kind != "" && ref.Kind != cdiv1.DataVolumeDataSource {
		r.Lacks = fmt.Sprintf("nobody follows a sourceRef to a %s", ref.Kind)
		return r, nil
	}
	var self cdiv1.DataSource
	if ok, err := from.Read(ctx, space, ref.Name, &self); !ok || err != nil {
		r.Lacks = fmt.Sprintf("there is no DataSource %s/%s", space, ref.Name)
		return r, err
	}
	next, err := Next(ctx, from, &self)
	if err != nil {
		return r, err
	}
	r.Labels = Inherited(self.Labels)
	if next != nil {
		r.Labels = nearer(r.Labels, next.Labels)
	}
	end, broken := End(&self, next)
	switch broken {
	case Whole:
		at, _ := OfSource(space, &cdiv1.DataVolumeSource{PVC: end.PVC, Snapshot: end.Snapshot})
		r.Source = at.Source()
	case Absent:
		r.Source = At(Claim, space, self.Spec.Source.DataSource.Name).Source()
		r.Lacks = fmt.Sprintf("there is no DataSource %s/%s", space, self.Spec.Source.DataSource.Name)
	case Itself:
		r.Lacks = fmt.Sprintf("DataSource %s/%s names itself", space, self.Name)
	case TooFar:
		r.Lacks = fmt.Sprintf("DataSource %s/%s stands for one that stands for another", space, self.Name)
	case Elsewhere, Empty:
		r.Lacks = fmt.Sprintf("DataSource %s/%s names no source in its own namespace", space, self.Name)
	}
	return r, nil
}

// ResolveDataSource follows a DataSource to the claim or snapshot that it stands for.
func ResolveDataSource(ctx context.Context, from Reader, r Ref) (Resolved, error) {
	return Resolve(ctx, from, r.Namespace, &cdiv1.DataVolumeSpec{
		SourceRef: &cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Namespace: &r.Namespace, Name: r.Name}})
}

// nearer returns have, with the labels of further that it does not have.
func nearer(have, further map[string]string) map[string]string {
	out := Inherited(further)
	maps.Copy(out, have)
	return out
}

// Inherit adds the labels of a source to those of its copies, without overwriting any.
func (r *Resolved) Inherit(labels map[string]string) { r.Labels = nearer(r.Labels, labels) }
