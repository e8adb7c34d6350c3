// Package createvm writes the manifest of a machine from a command line: the machine with its claims as
// volumeClaimTemplates, and the sources they are filled from. It is pure; it does not know whether a cluster would take
// what it writes, nor what is in one.
package createvm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Options are the flags and arguments of the command. Volumes are written as parameters: "key:value,key:value".
type Options struct {
	Name         string
	Namespace    string // written only if set
	RunStrategy  string
	GracePeriod  int64 // negative: the cluster's
	Memory       string
	Instancetype string // "name", or "kind/name"
	Preference   string
	Node         string // the one it has to run on; empty: any

	// Infer takes the instance type or the preference from the first volume to boot from.
	InferInstancetype, InferPreference bool

	Containerdisks, Claims, Imports []string
	// FromImage is a container image whose program the machine runs; empty: it boots by itself.
	FromImage string
	// Image is a golden image that the machine has a disk of: NAME of the library's, or NAMESPACE/NAME. Its labels say which instance type and preference
	// suit it, unless others are asked for; MemorySaid keeps the machine from having an instance type.
	Image      string
	MemorySaid bool

	CloudInit CloudInit
}

// builder collects the parts of a machine.
type builder struct {
	options Options
	vm      *kubevirt.VirtualMachine
	sources []any
	drives  []drive
}

// drive is a volume with its place in the boot order; 0 is none given.
type drive struct {
	volume kubevirt.Volume
	order  uint
}

// Objects returns what has to be applied, in this order: the machine is the last.
func Objects(o Options) ([]any, error) {
	o = o.golden()
	b := &builder{options: o}
	if err := b.begin(); err != nil {
		return nil, err
	}
	if o.FromImage != "" {
		b.drives = append(b.drives, drive{volume: kubevirt.Volume{Name: "image",
			VolumeSource: kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{Image: o.FromImage}}}})
	}
	for _, add := range []struct {
		flag   string
		values []string
		volume func(params, int) error
	}{
		{"volume-containerdisk", o.Containerdisks, b.containerdisk},
		{"volume-pvc", o.Claims, b.claim},
		{"volume-import", o.Imports, b.imported},
	} {
		for i, text := range add.values {
			p, err := parse(text)
			if err == nil {
				err = add.volume(p, i)
			}
			if err == nil {
				err = p.rest()
			}
			if err != nil {
				return nil, fmt.Errorf("--%s %q: %w", add.flag, text, err)
			}
		}
	}
	if err := b.attach(); err != nil {
		return nil, err
	}
	if err := b.matchers(); err != nil {
		return nil, err
	}
	return append(b.sources, b.vm), nil
}

// library is the namespace that the golden images are in that come with an installation (config/library).
const library = "kubevirt-os-images"

// golden returns the options with the golden image spelled out.
func (o Options) golden() Options {
	if o.Image == "" {
		return o
	}
	source := o.Image
	if !strings.Contains(source, "/") {
		source = library + "/" + source
	}
	o.Imports = append([]string{"type:ds,src:" + source + ",name:root"}, o.Imports...)
	o.InferInstancetype = o.InferInstancetype || o.Instancetype == "" && !o.MemorySaid
	o.InferPreference = o.InferPreference || o.Preference == ""
	return o
}

func (b *builder) begin() error {
	strategy := kubevirt.RunStrategy(b.options.RunStrategy)
	known := []kubevirt.RunStrategy{
		kubevirt.RunAlways, kubevirt.RunHalted, kubevirt.RunManual, kubevirt.RunRerunOnFailure, kubevirt.RunOnce,
	}
	if !slices.Contains(known, strategy) {
		return fmt.Errorf("run strategy %q is none of %v", b.options.RunStrategy, known)
	}
	if err := named("a machine", b.options.Name); err != nil {
		return err
	}
	spec := kubevirt.VirtualMachineInstanceSpec{}
	if b.options.GracePeriod >= 0 {
		spec.TerminationGracePeriodSeconds = &b.options.GracePeriod
	}
	if b.options.Node != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: b.options.Node}
	}
	if b.options.Instancetype == "" && !b.options.InferInstancetype {
		memory, err := resource.ParseQuantity(b.options.Memory)
		if err != nil || memory.Sign() <= 0 {
			return fmt.Errorf("memory %q is not a size like 512Mi", b.options.Memory)
		}
		spec.Domain.Memory = &kubevirt.Memory{Guest: &memory}
	}
	b.vm = &kubevirt.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: kubevirt.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Name: b.options.Name, Namespace: b.options.Namespace},
		Spec: kubevirt.VirtualMachineSpec{
			RunStrategy: &strategy, Template: &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: spec},
		},
	}
	return nil
}

// named returns whether the API server would take a name: it becomes a label, and part of other names.
func named(what, name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("%s cannot be called %q: use lower case letters, digits and dashes, and at most %d of them",
			what, name, validation.DNS1123LabelMaxLength)
	}
	return nil
}

func (b *builder) spec() *kubevirt.VirtualMachineInstanceSpec { return &b.vm.Spec.Template.Spec }

// attach puts every volume into a drive. Volumes without a place in the boot order boot after those that have one, in
// the order container disk, claim, imported volume.
func (b *builder) attach() error {
	if len(b.drives) == 0 {
		return fmt.Errorf("give the machine something to boot from: --image, --volume-containerdisk, --volume-pvc, --volume-import or --from-image")
	}
	taken := map[uint]string{}
	for _, d := range b.drives {
		if d.order > 0 && taken[d.order] != "" {
			return fmt.Errorf("volumes %s and %s have the same boot order %d", taken[d.order], d.volume.Name, d.order)
		}
		taken[d.order] = d.volume.Name
	}
	next := uint(1)
	names := map[string]bool{}
	for _, d := range b.drives {
		if names[d.volume.Name] {
			return fmt.Errorf("two volumes are called %s", d.volume.Name)
		}
		if err := named("a volume", d.volume.Name); err != nil {
			return err
		}
		names[d.volume.Name] = true
		order := d.order
		for order == 0 {
			if taken[next] == "" {
				order = next
			}
			next++
		}
		b.spec().Domain.Devices.Disks = append(b.spec().Domain.Devices.Disks, kubevirt.Disk{
			Name: d.volume.Name, DiskDevice: virtio(), BootOrder: &order,
		})
		b.spec().Volumes = append(b.spec().Volumes, d.volume)
	}
	return b.cloudInit()
}

func virtio() kubevirt.DiskDevice {
	return kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.BusVirtio}}
}

// matchers returns the instance type and the preference.
func (b *builder) matchers() error {
	boot := b.firstVolume()
	i, err := matcher("instancetype", b.options.Instancetype, b.options.InferInstancetype, boot)
	if err != nil {
		return err
	}
	p, err := matcher("preference", b.options.Preference, b.options.InferPreference, boot)
	if err != nil {
		return err
	}
	if i != nil {
		b.vm.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: i.name, Kind: i.kind, InferFromVolume: i.infer}
	}
	if p != nil {
		b.vm.Spec.Preference = &kubevirt.PreferenceMatcher{Name: p.name, Kind: p.kind, InferFromVolume: p.infer}
	}
	return nil
}

type match struct{ name, kind, infer string }

// matcher reads "name" or "kind/name"; nil if nothing is asked for.
func matcher(what, text string, infer bool, volume string) (*match, error) {
	kinds := map[string]string{
		"virtualmachine" + what:        "VirtualMachine" + strings.ToUpper(what[:1]) + what[1:],
		"virtualmachinecluster" + what: "VirtualMachineCluster" + strings.ToUpper(what[:1]) + what[1:],
	}
	switch {
	case text == "" && infer:
		return &match{infer: volume}, nil
	case text == "":
		return nil, nil
	case infer:
		return nil, fmt.Errorf("%s is either named or inferred", what)
	}
	kind, name, found := strings.Cut(text, "/")
	if !found {
		return &match{name: text}, nil
	}
	if kinds[strings.ToLower(kind)] == "" || name == "" {
		return nil, fmt.Errorf("%s %q is not NAME, virtualmachine%s/NAME or virtualmachinecluster%s/NAME", what, text, what, what)
	}
	return &match{name: name, kind: kinds[strings.ToLower(kind)]}, nil
}

func (b *builder) firstVolume() string {
	disks := slices.DeleteFunc(slices.Clone(b.spec().Domain.Devices.Disks), func(d kubevirt.Disk) bool { return d.BootOrder == nil })
	return slices.MinFunc(disks, func(x, y kubevirt.Disk) int { return cmp.Compare(*x.BootOrder, *y.BootOrder) }).Name
}
