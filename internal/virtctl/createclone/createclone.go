// Package createclone writes the manifest of a VirtualMachineClone from upstream's flags. It asks no cluster.
package createclone

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	clonev1 "github.com/berth-vm/berth/api/clone/v1beta1"
)

// Options has the values of upstream's flags.
type Options struct {
	Name, Namespace                                                            string
	SourceName, SourceType, TargetName, TargetType                             string
	LabelFilters, AnnotationFilters, TemplateLabels, TemplateAnnotations, MACs []string
	Serial                                                                     string
}

// Manifest returns the clone. Its name is generated if there is none.
func (o Options) Manifest() (*clonev1.VirtualMachineClone, error) {
	if o.SourceName == "" {
		return nil, errors.New("source name must not be empty") // the text clients know
	}
	source, err := reference("source", o.SourceType, o.SourceName)
	if err != nil {
		return nil, err
	}
	target, err := reference("target", o.TargetType, o.TargetName)
	if err != nil {
		return nil, err
	}
	c := &clonev1.VirtualMachineClone{
		TypeMeta:   metav1.TypeMeta{APIVersion: clonev1.GroupVersion.String(), Kind: "VirtualMachineClone"},
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace},
		Spec: clonev1.VirtualMachineCloneSpec{Source: *source, Target: target, LabelFilters: filters(o.LabelFilters), AnnotationFilters: filters(o.AnnotationFilters),
			Template: clonev1.TemplateFilters{LabelFilters: filters(o.TemplateLabels), AnnotationFilters: filters(o.TemplateAnnotations)}},
	}
	if c.Name == "" {
		c.Name = "clone-" + rand.String(5)
	}
	if o.Serial != "" {
		c.Spec.NewSMBiosSerial = &o.Serial
	}
	for _, text := range o.MACs {
		name, address, _ := strings.Cut(text, ":")
		switch {
		case name == "":
			return nil, fmt.Errorf("newMacAddress parameter %s has empty interface name", text)
		case address == "":
			return nil, fmt.Errorf("newMacAddress parameter %s has empty address name", text)
		}
		if c.Spec.NewMacAddresses == nil {
			c.Spec.NewMacAddresses = map[string]string{}
		}
		c.Spec.NewMacAddresses[name] = address
	}
	return c, nil
}

func filters(texts []string) []clonev1.Filter {
	var out []clonev1.Filter
	for _, t := range texts {
		out = append(out, clonev1.Filter(t))
	}
	return out
}

// reference returns the source or the target. Only a source may be a snapshot.
func reference(which, kind, name string) (*corev1.TypedLocalObjectReference, error) {
	types := map[string]string{"source": "vm, vmsnapshot", "target": "vm"}
	group := "kubevirt.io"
	switch kind {
	case "", "vm", "VM", "VirtualMachine", "virtualmachine":
		return &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: name}, nil
	case "snapshot", "VirtualMachineSnapshot", "vmsnapshot", "VMSnapshot":
		if which == "source" {
			group = "snapshot.kubevirt.io"
			return &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachineSnapshot", Name: name}, nil
		}
	}
	return nil, fmt.Errorf("%s type %s is not supported. Supported types: %s", which, kind, types[which])
}
