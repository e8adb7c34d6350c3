package createvm

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/importsource"
)

func (b *builder) add(p params, name string, source kubevirt.VolumeSource) error {
	order, err := p.bootOrder()
	if err != nil {
		return err
	}
	copied, err := p.copied()
	if err != nil {
		return err
	}
	b.drives = append(b.drives, drive{volume: kubevirt.Volume{Name: name, VolumeSource: source, Copy: copied}, order: order})
	return nil
}

func (b *builder) containerdisk(p params, i int) error {
	image, err := p.need("src")
	if err != nil {
		return err
	}
	name := p.take("name", fmt.Sprintf("containerdisk-%d", i))
	return b.add(p, name, kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: image}})
}

// claim returns a claim that exists and is used as it is.
func (b *builder) claim(p params, i int) error {
	claim, err := p.need("src")
	if err != nil {
		return err
	}
	name := p.take("name", fmt.Sprintf("pvc-%d", i))
	return b.add(p, name, kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: claim}})
}

// types lists the kinds of sources that a claim can be filled from.
var types = slices.Sorted(slices.Values(append([]string{"blank", "ds", "pvc", "snapshot"}, importsource.Names()...)))

// imported adds a claim that is made for the machine and filled from a source.
func (b *builder) imported(p params, i int) error {
	kind := p.take("type", "")
	if !slices.Contains(types, kind) {
		return fmt.Errorf("type %q is none of %s", kind, strings.Join(types, ", "))
	}
	name := p.take("name", fmt.Sprintf("disk-%d", i))
	template := kubevirt.VolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if class := p.take("storageclass", ""); class != "" {
		template.Spec.StorageClassName = &class
	}
	size, err := p.size(!slices.Contains([]string{"pvc", "snapshot", "ds"}, kind)) // a clone is as large as its source
	if err != nil {
		return err
	}
	if size != nil {
		template.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *size}
	}
	if template.Spec.DataSourceRef, err = b.source(kind, name, p); err != nil {
		return err
	}
	b.vm.Spec.VolumeClaimTemplates = append(b.vm.Spec.VolumeClaimTemplates, template)
	return b.add(p, name, kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: name}})
}

// source sets the source of a claim; nil for none.
func (b *builder) source(kind, name string, p params) (*corev1.TypedObjectReference, error) {
	switch kind {
	case "blank":
		return nil, nil
	case "pvc", "snapshot":
		return b.clone(kind, name, p)
	case "ds":
		namespace, source, err := p.object()
		return reference(cdiv1.DataVolumeDataSource, namespace, source), err
	}
	server := importsource.Named(kind)
	url, err := p.url(server.Schemes...)
	if err != nil {
		return nil, err
	}
	from := importsource.Source{URL: url, Secret: p.take("secretref", ""), Certificates: p.take("certconfigmap", "")}
	if kind == "registry" {
		from.PullMethod = cdiv1.RegistryPullMethod(p.take("pullmethod", ""))
	}
	switch from.PullMethod {
	case "", cdiv1.RegistryPullPod, cdiv1.RegistryPullNode:
	default:
		return nil, fmt.Errorf("pullmethod %q is neither pod nor node", from.PullMethod)
	}
	made := &cdiv1.VolumeImportSource{
		TypeMeta:   metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: cdiv1.VolumeImportSourceRef},
		ObjectMeta: b.sourceMeta(name), Spec: cdiv1.VolumeImportSourceSpec{Source: importsource.ToImport(server.Source(from))},
	}
	b.sources = append(b.sources, made)
	return reference(cdiv1.VolumeImportSourceRef, "", made.Name), nil
}

func (b *builder) clone(kind, name string, p params) (*corev1.TypedObjectReference, error) {
	namespace, from, err := p.object()
	if err != nil {
		return nil, err
	}
	source := corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: from}
	if kind == "snapshot" {
		source = corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: from}
	}
	made := &cdiv1.VolumeCloneSource{
		TypeMeta:   metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: cdiv1.VolumeCloneSourceRef},
		ObjectMeta: b.sourceMeta(name), Spec: cdiv1.VolumeCloneSourceSpec{Source: source},
	}
	if namespace != "" { // a source names what is in its own namespace
		made.Namespace = namespace
	}
	b.sources = append(b.sources, made)
	return reference(cdiv1.VolumeCloneSourceRef, namespace, made.Name), nil
}

// sourceMeta names a source as the claim it fills is named.
func (b *builder) sourceMeta(template string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: kubevirt.ClaimName(b.options.Name, template), Namespace: b.options.Namespace}
}

func reference(kind, namespace, name string) *corev1.TypedObjectReference {
	r := &corev1.TypedObjectReference{APIGroup: new(cdiv1.SchemeGroupVersion.Group), Kind: kind, Name: name}
	if namespace != "" {
		r.Namespace = &namespace
	}
	return r
}

// object reads "name" or "namespace/name".
func (p params) object() (namespace, name string, err error) {
	text, err := p.need("src")
	if err != nil {
		return "", "", err
	}
	if before, after, found := strings.Cut(text, "/"); found {
		namespace, text = before, after
	}
	if text == "" || strings.Contains(text, "/") {
		return "", "", fmt.Errorf("src is not NAME or NAMESPACE/NAME")
	}
	return namespace, text, nil
}
