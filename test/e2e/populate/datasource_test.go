//go:build e2e

package populate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestDataSourceByName: a DataSource that no DataImportCron made gives its name to disks. One is left by an upload of virtctl, one
// is written manually in another namespace. virtctl create vm names them, on a cluster without the gate
// CrossNamespaceVolumeDataSource, and the machines run on static local volumes, on a provisioner that looks at no data source, and
// on a CSI driver.
func TestDataSourceByName(t *testing.T) {
	t.Parallel()
	y, images := fixture.NewMachines(t), fixture.NewVolumes(t)
	b := &fixture.Volumes{Env: y.Env, Kube: y.Kube}
	v := fixture.NewVirtctl(t, y.Env)
	v.Must("image-upload", "dv", "uploaded", "--image-path="+fixture.WriteFile(t, "disk.img", fixture.DiskImage(16)), "--size=64Mi", "--storage-class="+fixture.ClassImmediate, "--datasource")
	importSource(images, "image", images.Web.URL+"/disk.img")
	populate(images, populated{name: "golden", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	images.CreateDataSource("far", cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: images.Namespace, Name: "golden"}})
	images.CreateDataSource("os", cdiv1.DataSourceSource{DataSource: &cdiv1.DataSourceRefSourceDataSource{Namespace: images.Namespace, Name: "far"}})
	grant(images, "team", y.Namespace, cdiv1.SchemeGroupVersion.Group, cdiv1.DataVolumeDataSource)
	images.UntilPopulated("golden")
	for _, one := range []struct {
		name, class, src string
		data             []byte
	}{
		{"static", fixture.ClassStatic, images.Namespace + "/os", fixture.DiskImage(24)},
		{"path", classPath, "uploaded", fixture.DiskImage(16)},
		{"disk", fixture.ClassDisk, images.Namespace + "/os", fixture.DiskImage(24)},
	} {
		vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: one.name}}
		if one.class == classPath { // no profile knows the access mode of this class
			y.CreateMachine(templated(y, one.name, store{class: one.class}, corev1.TypedObjectReference{Kind: cdiv1.DataVolumeDataSource, Name: one.src}))
		} else {
			fixture.ApplyYAML(y, v.Must("create", "vm", "--name="+one.name, "--memory=128Mi", "--termination-grace-period=0",
				"--volume-import=type:ds,src:"+one.src+",name:root,size:128Mi,storageclass:"+one.class))
		}
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		claim := fmt.Sprintf("%s-root", one.name)
		if c := b.ReadClaim(claim); c.Annotations[fixture.PodPhaseAnnotation] != string(corev1.PodSucceeded) {
			t.Errorf("%s: the machine runs, and its claim says %v", claim, c.Annotations)
		}
		b.BeginsWith(claim, one.data)
		if err := y.Kube.Delete(y.Context(), vm); err != nil { // there are few static volumes
			t.Fatal(err)
		}
	}
}

// TestDataSourceSays: a claim says which DataSource it cannot be filled from and why, and is filled when that is mended.
func TestDataSourceSays(t *testing.T) {
	t.Parallel()
	b, images := fixture.NewVolumes(t, framework.Restricted), fixture.NewVolumes(t)
	importSource(images, "image", images.Web.URL+"/disk.img")
	populate(images, populated{name: "golden", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	images.UntilPopulated("golden")
	theirs := cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: images.Namespace, Name: "golden"}}
	for name, says := range map[string]string{
		"gone":  "DataSource " + b.Namespace + "/gone doesn't exist",
		"empty": "DataSource " + b.Namespace + "/empty: DataSource " + b.Namespace + "/empty names no source",
		"early": "The source pvc " + b.Namespace + "/not-yet doesn't exist",
		"leads": "it stands for PersistentVolumeClaim " + images.Namespace + "/golden, and no ReferenceGrant in namespace " + images.Namespace,
	} {
		switch name {
		case "empty":
			b.CreateDataSource(name, cdiv1.DataSourceSource{})
		case "early":
			b.CreateDataSource(name, cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "not-yet"}})
		case "leads":
			b.CreateDataSource(name, theirs)
		}
		populate(b, populated{name: name, class: fixture.ClassImmediate, size: "64Mi", kind: cdiv1.DataVolumeDataSource, source: name})
		b.ClaimSays(name, says)
	}
	grant(images, "claims", b.Namespace, "", "PersistentVolumeClaim")
	b.UntilPopulated("leads")
	b.BeginsWith("leads", fixture.DiskImage(24))
}
