package claimorder

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func claim(annotations map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Annotations: annotations}}
}

func TestOf(t *testing.T) {
	const url = "https://example.com/disk.qcow2"
	for name, c := range map[string]struct {
		annotations map[string]string
		want        cdiv1.DataVolumeSpec
	}{
		"an upload": {map[string]string{Upload: ""}, cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}}},
		"an archive to be uploaded": {map[string]string{Upload: "", Content: "archive"}, cdiv1.DataVolumeSpec{
			ContentType: cdiv1.DataVolumeArchive, Source: &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}}},
		"an endpoint alone": {map[string]string{Endpoint: url}, cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{
			HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}}}},
		"everything about http": {map[string]string{
			Endpoint: url, Source: "http", secret: "s", certificates: "c", checksum: "md5:0", insecure: "true", headers + ".1": "B: b",
			headers + ".0": "A: a", secretHeaders + ".0": "h", preallocation: "true", priority: "p", serviceAccount: "sa", Content: "kubevirt",
		}, cdiv1.DataVolumeSpec{
			ContentType: cdiv1.DataVolumeKubeVirt, Preallocation: ptr.To(true), PriorityClassName: "p", ServiceAccountName: "sa",
			Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
				URL: url, SecretRef: "s", CertConfigMap: "c", Checksum: "md5:0", InsecureSkipVerify: ptr.To(true),
				ExtraHeaders: []string{"A: a", "B: b"}, SecretExtraHeaders: []string{"h"},
			}},
		}},
		"s3": {map[string]string{Endpoint: "s3://b/k", Source: "s3", secret: "s"}, cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{
			S3: &cdiv1.DataVolumeSourceS3{URL: "s3://b/k", SecretRef: "s"}}}},
		"gcs": {map[string]string{Endpoint: "gs://b/k", Source: "gcs"}, cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{
			GCS: &cdiv1.DataVolumeSourceGCS{URL: "gs://b/k"}}}},
		"a registry": {map[string]string{Endpoint: "docker://r/i", Source: "registry", pullMethod: "node", architecture: "arm64", secret: "s", certificates: "c"},
			cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
				URL: ptr.To("docker://r/i"), PullMethod: ptr.To(cdiv1.RegistryPullNode), SecretRef: ptr.To("s"), CertConfigMap: ptr.To("c"),
				Platform: &cdiv1.PlatformOptions{Architecture: "arm64"}}}}},
		"nothing to import": {map[string]string{Source: "none"}, cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			it := claim(c.annotations)
			c.want.PVC = &it.Spec
			got, err := Of(it)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestOfSomebodyElse: what others fill, or have filled, is not ordered.
func TestOfSomebodyElse(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"it asks for nothing": func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil },
		"a DataVolume's": func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "disk", Controller: ptr.To(true)}}
		},
		"populated": func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef = &corev1.TypedObjectReference{Name: "x"} },
		"cloned": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Name: "x"}
		},
		"restored":        func(c *corev1.PersistentVolumeClaim) { c.Annotations[populatedFor] = "disk" },
		"cloned long ago": func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{Clone: "a/b", cloned: "true"} },
	} {
		for _, order := range []string{Upload, Endpoint} {
			c := claim(map[string]string{order: "https://example.com/x"})
			change(c)
			if got, err := Of(c); got != nil || err != nil {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	}
}

func TestOfRefuses(t *testing.T) {
	for want, annotations := range map[string]map[string]string{
		`storage.contentType is "tar\n<b>", which is neither kubevirt nor archive`: {Upload: "", Content: "tar\n<b>"},
		`storage.import.source is "vddk", which cannot be imported`:                {Endpoint: "https://x", Source: "vddk"},
		"storage.import.endpoint is missing or empty":                              {Source: "http"},
		"asks for an upload (cdi.kubevirt.io/storage.upload.target) and an import": {Upload: "", Endpoint: "https://x"},
		"write a DataVolume with spec.source.pvc":                                  {Clone: "ns/name"},
	} {
		if got, err := Of(claim(annotations)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %+v, %v; want %s", annotations, got, err, want)
		}
	}
}
