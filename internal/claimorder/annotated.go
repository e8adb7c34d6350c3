// Package claimorder reads the orders that people write onto a claim of their own with annotations of cdi.kubevirt.io: to take an
// upload, or to be filled by an import. It is the oldest interface of that API, and still in scripts.
//
// It is pure. It does not know whether the claim is bound, nor what is on it already.
package claimorder

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/names"
)

// The annotations that are an order. Of Upload presence counts, not the value.
const (
	Upload   = "cdi.kubevirt.io/storage.upload.target"
	Endpoint = "cdi.kubevirt.io/storage.import.endpoint"
	Source   = "cdi.kubevirt.io/storage.import.source"
	Clone    = "k8s.io/CloneRequest"
)

// The annotations that say more about an order.
//
//nolint:gosec // names of annotations, not credentials
const (
	Content        = names.ContentType
	secret         = "cdi.kubevirt.io/storage.import.secretName"
	certificates   = "cdi.kubevirt.io/storage.import.certConfigMap"
	headers        = "cdi.kubevirt.io/storage.import.extraHeaders"       // and anything after it
	secretHeaders  = "cdi.kubevirt.io/storage.import.secretExtraHeaders" // and anything after it
	checksum       = "cdi.kubevirt.io/storage.import.checksum"
	insecure       = "cdi.kubevirt.io/storage.import.insecureSkipVerify"
	architecture   = "cdi.kubevirt.io/storage.import.registryImageArchitecture"
	pullMethod     = "cdi.kubevirt.io/storage.import.registryImportMethod"
	imageStream    = "cdi.kubevirt.io/storage.import.registryImageStream"
	preallocation  = "cdi.kubevirt.io/storage.preallocation.requested"
	priority       = "cdi.kubevirt.io/storage.pod.priorityclassname"
	serviceAccount = "cdi.kubevirt.io/storage.pod.serviceAccountName"
)

// Annotations of claims that are filled, or that another program fills.
const (
	phase        = names.PodPhase
	populatedFor = names.PopulatedFor
	cloned       = "k8s.io/CloneOf"
)

// Of returns the order in a claim's annotations, as the spec of a DataVolume; nil if there is none, or if another program fills
// the claim. An order that cannot be carried out is an error, which says what to write instead.
func Of(c *corev1.PersistentVolumeClaim) (*cdiv1.DataVolumeSpec, error) {
	a := c.Annotations
	_, upload := a[Upload]
	_, endpoint := a[Endpoint]
	_, source := a[Source]
	_, clone := a[Clone]
	switch {
	case !upload && !endpoint && !source && !clone, !Free(c):
		return nil, nil
	case clone:
		return nil, fmt.Errorf("a claim is not cloned by its annotation %s any more: write a DataVolume with spec.source.pvc, "+
			"or a claim with a dataSourceRef to a VolumeCloneSource", Clone)
	case upload && (endpoint || source):
		return nil, fmt.Errorf("the claim asks for an upload (%s) and an import (%s) at once: remove one of the annotations", Upload, Endpoint)
	}
	content := cdiv1.DataVolumeContentType(a[Content])
	switch content {
	case "", cdiv1.DataVolumeKubeVirt, cdiv1.DataVolumeArchive:
	default:
		return nil, fmt.Errorf("annotation %s is %q, which is neither %s nor %s", Content, content, cdiv1.DataVolumeKubeVirt, cdiv1.DataVolumeArchive)
	}
	spec := &cdiv1.DataVolumeSpec{
		PVC: &c.Spec, ContentType: content, PriorityClassName: a[priority], ServiceAccountName: a[serviceAccount],
		Source: &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}},
	}
	if a[preallocation] == "true" {
		spec.Preallocation = ptr.To(true)
	}
	if upload {
		return spec, nil
	}
	var err error
	spec.Source, err = importFrom(a)
	return spec, err
}

// Free reports whether no one else fills the claim, or has: no DataVolume or other controller, no populator, no driver, no
// restore.
func Free(c *corev1.PersistentVolumeClaim) bool {
	_, restored := c.Annotations[populatedFor]
	done := c.Annotations[Clone] != "" && (c.Annotations[cloned] != "" || Complete(c))
	return metav1.GetControllerOf(c) == nil && c.Spec.DataSource == nil && c.Spec.DataSourceRef == nil && !restored && !done
}

// Complete reports whether it is recorded on the claim that its data is there.
func Complete(c *corev1.PersistentVolumeClaim) bool {
	return c.Annotations[phase] == string(corev1.PodSucceeded)
}

// importFrom returns the source that an import's annotations name. Without a kind it is http, as it always was.
func importFrom(a map[string]string) (*cdiv1.DataVolumeSource, error) {
	kind := a[Source]
	if a[Endpoint] == "" && kind != "none" && a[imageStream] == "" {
		return nil, fmt.Errorf("annotation %s is missing or empty: it names what to import", Endpoint)
	}
	if kind == "none" {
		return &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, nil
	}
	if kind == "" {
		kind = "http"
	}
	known := importsource.Named(kind)
	if known == nil {
		return nil, fmt.Errorf("annotation %s is %q, which cannot be imported: it may be %s, or none for a blank disk; "+
			"download the disk and import it from one of these, or upload it", Source, kind, strings.Join(importsource.Names(), ", "))
	}
	from := importsource.Source{
		URL: a[Endpoint], Secret: a[secret], Certificates: a[certificates], Checksum: a[checksum],
		Headers: all(a, headers), SecretHeaders: all(a, secretHeaders),
		ImageStream: a[imageStream], PullMethod: cdiv1.RegistryPullMethod(a[pullMethod]), Architecture: a[architecture],
	}
	if skip, err := strconv.ParseBool(a[insecure]); err == nil {
		from.Insecure = &skip
	}
	return known.Source(from), nil
}

// all returns the values of the annotations that begin with a name, in the order of their names: that is how lists were written.
func all(a map[string]string, name string) []string {
	var values []string
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if strings.HasPrefix(key, name) {
			values = append(values, a[key])
		}
	}
	return values
}
