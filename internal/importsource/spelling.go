package importsource

import (
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func readHTTP(s *cdiv1.DataVolumeSource) (Source, bool) {
	h := s.HTTP
	if h == nil {
		return Source{}, false
	}
	return Source{URL: h.URL, Secret: h.SecretRef, Certificates: h.CertConfigMap, Checksum: h.Checksum,
		Headers: h.ExtraHeaders, SecretHeaders: h.SecretExtraHeaders, Insecure: h.InsecureSkipVerify}, true
}

func writeHTTP(out *cdiv1.DataVolumeSource, s Source) {
	out.HTTP = &cdiv1.DataVolumeSourceHTTP{URL: s.URL, SecretRef: s.Secret, CertConfigMap: s.Certificates, Checksum: s.Checksum,
		ExtraHeaders: s.Headers, SecretExtraHeaders: s.SecretHeaders, InsecureSkipVerify: s.Insecure}
}

func readS3(s *cdiv1.DataVolumeSource) (Source, bool) {
	if s.S3 == nil {
		return Source{}, false
	}
	return Source{URL: s.S3.URL, Secret: s.S3.SecretRef, Certificates: s.S3.CertConfigMap}, true
}

func writeS3(out *cdiv1.DataVolumeSource, s Source) {
	out.S3 = &cdiv1.DataVolumeSourceS3{URL: s.URL, SecretRef: s.Secret, CertConfigMap: s.Certificates}
}

func readGCS(s *cdiv1.DataVolumeSource) (Source, bool) {
	if s.GCS == nil {
		return Source{}, false
	}
	return Source{URL: s.GCS.URL, Secret: s.GCS.SecretRef}, true
}

func writeGCS(out *cdiv1.DataVolumeSource, s Source) {
	out.GCS = &cdiv1.DataVolumeSourceGCS{URL: s.URL, SecretRef: s.Secret}
}

func readRegistry(s *cdiv1.DataVolumeSource) (Source, bool) {
	r := s.Registry
	if r == nil {
		return Source{}, false
	}
	return Source{URL: ptr.Deref(r.URL, ""), Secret: ptr.Deref(r.SecretRef, ""), Certificates: ptr.Deref(r.CertConfigMap, ""),
		Architecture: ptr.Deref(r.Platform, cdiv1.PlatformOptions{}).Architecture, PullMethod: ptr.Deref(r.PullMethod, ""),
		ImageStream: ptr.Deref(r.ImageStream, "")}, true
}

func writeRegistry(out *cdiv1.DataVolumeSource, s Source) {
	out.Registry = &cdiv1.DataVolumeSourceRegistry{URL: &s.URL, SecretRef: set(s.Secret), CertConfigMap: set(s.Certificates),
		PullMethod: set(s.PullMethod), ImageStream: set(s.ImageStream)}
	if s.Architecture != "" {
		out.Registry.Platform = &cdiv1.PlatformOptions{Architecture: s.Architecture}
	}
}

// set is nil for what is not set.
func set[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}
