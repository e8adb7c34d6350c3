// Package createpvc makes a claim from the little a user says about it: pkg/claim fills in the rest. It needs the data
// side of a cluster (cdi.kubevirt.io) only where the user leaves open what only a StorageProfile knows, or names one of
// its sources. It does not know how a claim is filled.
package createpvc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Options are the flags and arguments of the command.
type Options struct {
	Name         string
	GenerateName string
	Namespace    string
	Size         string
	SizeIsDisk   bool // the size is that of a disk that is to fit into the claim
	Class        string
	AccessModes  []string
	VolumeMode   string
	Labels       map[string]string
	Source       Source
}

// Source is the dataSourceRef. Its zero value is an empty volume.
type Source struct {
	Kind, Name string
	Group      string // found from the kind where it is empty
	Namespace  string // the claim's where it is empty
}

// groups are the API groups of the kinds that a claim can be made from without naming a group.
var groups = map[string]string{
	cdiv1.VolumeImportSourceRef: cdiv1.SchemeGroupVersion.Group,
	cdiv1.VolumeUploadSourceRef: cdiv1.SchemeGroupVersion.Group,
	cdiv1.VolumeCloneSourceRef:  cdiv1.SchemeGroupVersion.Group,
	cdiv1.DataVolumeDataSource:  cdiv1.SchemeGroupVersion.Group,
	"VolumeSnapshot":            "snapshot.storage.k8s.io",
	"PersistentVolumeClaim":     "",
}

// ours reports whether the data side fills it.
func (s Source) ours() bool { return s.Kind != "" && s.group() == cdiv1.SchemeGroupVersion.Group }

func (s Source) group() string {
	if s.Group != "" {
		return s.Group
	}
	return groups[s.Kind]
}

func (s Source) check() error {
	switch {
	case s.Kind == "" && s.Name == "" && s.Group == "" && s.Namespace == "":
		return nil
	case s.Kind == "" || s.Name == "":
		return errors.New("data-source-ref-kind and data-source-ref-name go together: both say what the claim is filled from")
	}
	if _, known := groups[s.Kind]; !known && s.Group == "" {
		return s.unknown()
	}
	return nil
}

// unknown returns what to write instead of a kind that is none of the well-known ones.
func (s Source) unknown() error {
	for kind := range groups {
		if strings.EqualFold(kind, s.Kind) {
			return fmt.Errorf("kind %s is written %s", s.Kind, kind)
		}
	}
	if strings.EqualFold(s.Kind, "datavolume") {
		return errors.New("a claim is not filled from a DataVolume: name its PersistentVolumeClaim, which has the same name")
	}
	return fmt.Errorf("the API group of %s is not known here: name it with --data-source-ref-api-group", s.Kind)
}

// partial returns the claim with the fields that the user set.
func (o Options) partial() (*corev1.PersistentVolumeClaim, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	pvc := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		// A name cannot end with a dash, but people write it where they are used to prefixes.
		ObjectMeta: metav1.ObjectMeta{Name: strings.TrimRight(o.Name, "-"), GenerateName: o.GenerateName, Namespace: o.Namespace, Labels: o.Labels},
	}
	spec := &pvc.Spec
	for _, m := range o.AccessModes {
		spec.AccessModes = append(spec.AccessModes, corev1.PersistentVolumeAccessMode(m))
	}
	if o.VolumeMode != "" {
		spec.VolumeMode = new(volumeModes[strings.ToLower(o.VolumeMode)])
	}
	if o.Class != "" {
		spec.StorageClassName = &o.Class
	}
	if o.Size != "" {
		spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(o.Size)} // checked
	}
	if s := o.Source; s.Kind != "" {
		spec.DataSourceRef = &corev1.TypedObjectReference{Kind: s.Kind, Name: s.Name}
		if group := s.group(); group != "" {
			spec.DataSourceRef.APIGroup = &group
		}
		if s.Namespace != "" && s.Namespace != o.Namespace {
			spec.DataSourceRef.Namespace = &s.Namespace
		}
	}
	return pvc, nil
}

var volumeModes = map[string]corev1.PersistentVolumeMode{
	"filesystem": corev1.PersistentVolumeFilesystem, "block": corev1.PersistentVolumeBlock,
}

var accessModes = []string{
	string(corev1.ReadWriteOnce), string(corev1.ReadOnlyMany), string(corev1.ReadWriteMany), string(corev1.ReadWriteOncePod),
}

// Check returns the errors in the options that can be found without a cluster.
func (o Options) Check() error {
	switch {
	case (strings.Trim(o.Name, "-") == "") == (o.GenerateName == ""):
		return errors.New("give the claim either a --name or a --generate-name")
	case o.VolumeMode != "" && volumeModes[strings.ToLower(o.VolumeMode)] == "":
		return fmt.Errorf("volume mode %q is neither Filesystem nor Block", o.VolumeMode)
	}
	if wrong := validation.IsDNS1123Subdomain(strings.TrimRight(o.Name+o.GenerateName, "-")); len(wrong) > 0 {
		return fmt.Errorf("a claim cannot be called %q: use lower case letters, digits and dashes, and at most 253 of them", o.Name+o.GenerateName)
	}
	for _, m := range o.AccessModes {
		if !slices.Contains(accessModes, m) {
			return fmt.Errorf("access mode %q is none of %s", m, strings.Join(accessModes, ", "))
		}
	}
	if o.Size != "" {
		if size, err := resource.ParseQuantity(o.Size); err != nil || size.Sign() <= 0 {
			return fmt.Errorf("size %q is not a size like 10Gi", o.Size)
		}
	}
	return o.Source.check()
}

// complete reports whether all fields are set that need facts of the cluster.
func (o Options) complete() bool {
	return o.Size != "" && len(o.AccessModes) > 0 && o.VolumeMode != "" && !o.Source.ours()
}
