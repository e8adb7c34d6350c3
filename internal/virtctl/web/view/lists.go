package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	snapshot "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/virtctl/status"
	"github.com/berth-vm/berth/pkg/claim"
)

func (o *Objects) snapshots(namespace, machine string) []Snapshot {
	restoring := map[string]string{}
	for _, r := range o.Restores {
		if r.Namespace == namespace && !ptr.Deref(r.Status.Complete, false) {
			restoring[r.Spec.VirtualMachineSnapshotName] = r.Name
		}
	}
	var out []Snapshot
	for _, s := range o.Snapshots {
		if s.Namespace != namespace || s.Spec.Source.Name != machine {
			continue
		}
		shown := Snapshot{
			Name: s.Name, Phase: string(s.Status.Phase), At: s.CreationTimestamp.Time, Ready: ptr.Deref(s.Status.ReadyToUse, false),
			Restoring: restoring[s.Name], Tone: Busy,
		}
		switch {
		case shown.Ready:
			shown.Tone = Good
		case s.Status.Phase == snapshot.Failed:
			shown.Tone = Bad
		}
		if s.Status.Error != nil {
			shown.Why = ptr.Deref(s.Status.Error.Message, "")
		}
		out = append(out, shown)
	}
	slices.SortFunc(out, func(a, b Snapshot) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Name, b.Name)) })
	return out
}

// Image is a golden image: a DataSource, and the cron that keeps it up to date.
type Image struct {
	Namespace, Name string
	From            string // the claim or snapshot that machines get a clone of
	Ready           bool
	Tone            Tone
	Why             string
	Cron            *Cron
}

// ID is one that no other image has.
func (i Image) ID() string { return "image/" + status.Key(i.Namespace, i.Name) }

// Cron describes how an image is kept up to date.
type Cron struct {
	Name, Schedule   string
	Why              string
	UpToDate         bool
	Last, LastImport time.Time
}

// Golden returns the images, sorted by name.
func (o *Objects) Golden() []Image {
	crons := map[string]*cdiv1.DataImportCron{}
	for _, c := range o.Crons {
		crons[status.Key(c.Namespace, c.Spec.ManagedDataSource)] = c
	}
	var out []Image
	for _, s := range o.Images {
		i := Image{Namespace: s.Namespace, Name: s.Name, Tone: Waiting, From: from(s.Spec.Source)}
		for _, c := range s.Status.Conditions {
			if c.Type == cdiv1.DataSourceReady {
				i.Ready, i.Why = c.Status == corev1.ConditionTrue, c.Message
			}
		}
		if i.Ready {
			i.Tone, i.Why = Good, ""
		}
		key := status.Key(s.Namespace, s.Name)
		if c := crons[key]; c != nil {
			i.Cron = cron(c)
			delete(crons, key)
		}
		out = append(out, i)
	}
	for _, c := range crons { // nothing was imported yet
		out = append(out, Image{Namespace: c.Namespace, Name: c.Spec.ManagedDataSource, Tone: Busy, Why: "nothing is imported yet", Cron: cron(c)})
	}
	slices.SortFunc(out, func(a, b Image) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out
}

func from(s cdiv1.DataSourceSource) string {
	switch {
	case s.PVC != nil:
		return "PersistentVolumeClaim " + s.PVC.Name
	case s.Snapshot != nil:
		return "VolumeSnapshot " + s.Snapshot.Name
	case s.DataSource != nil:
		return "DataSource " + s.DataSource.Name
	}
	return ""
}

func cron(c *cdiv1.DataImportCron) *Cron {
	out := &Cron{Name: c.Name, Schedule: c.Spec.Schedule}
	if t := c.Status.LastExecutionTimestamp; t != nil {
		out.Last = t.Time
	}
	if t := c.Status.LastImportTimestamp; t != nil {
		out.LastImport = t.Time
	}
	for _, s := range c.Status.Conditions {
		if s.Type == cdiv1.DataImportCronUpToDate {
			out.UpToDate, out.Why = s.Status == corev1.ConditionTrue, s.Message
		}
	}
	return out
}

// Class is a storage class with its properties.
type Class struct {
	Name, Provisioner string
	Default, VirtDefault,
	Waits bool
	Modes   []string // what claims get: "ReadWriteOnce Block"
	Clone   string
	Known   bool
	Why     string // how it is known, or what is missing
	Volumes int
}

// ID is one that no other class has.
func (c Class) ID() string { return "class/" + c.Name }

// AllClasses returns the classes, sorted by name.
func (o *Objects) AllClasses() []Class {
	profiles := map[string]*cdiv1.StorageProfile{}
	for _, p := range o.Profiles {
		profiles[p.Name] = p
	}
	volumes := map[string]int{}
	for _, v := range o.PVs {
		volumes[v.Spec.StorageClassName]++
	}
	var out []Class
	for _, s := range o.Classes {
		out = append(out, class(s, profiles[s.Name], volumes[s.Name]))
	}
	slices.SortFunc(out, func(a, b Class) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func class(s *storagev1.StorageClass, p *cdiv1.StorageProfile, volumes int) Class {
	c := Class{
		Name: s.Name, Provisioner: s.Provisioner, Waits: claim.Waits(s), Volumes: volumes,
		Default:     s.Annotations[claim.DefaultClassAnnotation] == "true",
		VirtDefault: s.Annotations[claim.DefaultVirtClassAnnotation] == "true",
	}
	if p == nil {
		c.Why = "there is no StorageProfile of it"
		return c
	}
	for _, set := range p.Status.ClaimPropertySets {
		var modes []string
		for _, m := range set.AccessModes {
			modes = append(modes, string(m))
		}
		c.Modes = append(c.Modes, fmt.Sprintf("%s %s", strings.Join(modes, "+"), ptr.Deref(set.VolumeMode, corev1.PersistentVolumeFilesystem)))
	}
	c.Clone = string(ptr.Deref(p.Status.CloneStrategy, ""))
	c.Known = len(c.Modes) > 0
	for _, said := range p.Status.Conditions {
		if said.Message != "" {
			c.Why = said.Message
		}
	}
	if !c.Known && c.Why == "" {
		c.Why = "nobody said which access and volume modes it has: set spec.claimPropertySets of its StorageProfile"
	}
	return c
}
