//go:build e2e

package volume

import (
	"archive/tar"
	"bytes"
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestVolumeSources: one import from every kind of place, with the credentials and certificates it takes.
func TestVolumeSources(t *testing.T) {
	t.Parallel()
	for name, source := range fixture.ImportSources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.NewVolumes(t, framework.Restricted)
			src := source(b)
			b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) { dv.Spec.Source = &src }})
			dv := b.UntilPhase("disk", cdiv1.Succeeded)
			if dv.Status.RestartCount != 0 {
				t.Errorf("took %d tries more than one", dv.Status.RestartCount)
			}
			b.Holds("disk", fixture.DiskImage(24), 40*fixture.MiB)
		})
	}
}

// TestVolumeArchive: a tar becomes the files of a volume. Files take what they need, so the claim does not say that it was preallocated.
func TestVolumeArchive(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	b.NoError(w.WriteHeader(&tar.Header{Name: "etc/hello", Mode: 0o644, Size: 5, Typeflag: tar.TypeReg}))
	_, err := w.Write([]byte("world"))
	b.NoError(err)
	b.NoError(w.Close())
	b.Web.Put("/files.tar", files.Bytes())
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Size: "40Mi", URL: b.Web.URL + "/files.tar", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.ContentType, dv.Spec.Preallocation = cdiv1.DataVolumeArchive, fixture.Ptr(true)
	}})
	b.UntilPhase("disk", cdiv1.Succeeded)
	if got := b.Run(framework.Pod{Name: "read", User: fixture.GuestUser, Claims: []string{"disk"}, Script: "cat /disk/etc/hello"}); got != "world" {
		t.Errorf("the archive's file holds %q", got)
	}
	if got, said := b.ReadClaim("disk").Annotations["cdi.kubevirt.io/storage.preallocation"]; said {
		t.Errorf("the claim says of preallocation %q", got)
	}
}
