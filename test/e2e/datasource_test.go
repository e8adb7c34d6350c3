//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// standing makes a DataSource that stands for something.
func (b *bed) standing(name string, of cdiv1.DataSourceSource) {
	b.T.Helper()
	b.create(&cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name}, Spec: cdiv1.DataSourceSpec{Source: of}})
}

// TestDataSourceByName: a DataSource that no DataImportCron made gives its name to disks. One is left by an upload of virtctl, one is written by
// hand in another namespace. virtctl create vm names them, on a cluster without the gate CrossNamespaceVolumeDataSource, and the machines run on
// static local volumes, on a provisioner that looks at no data source, and on a CSI driver.
func TestDataSourceByName(t *testing.T) {
	t.Parallel()
	y, images := newYard(t), newBed(t)
	b := &bed{Env: y.Env, kube: y.kube}
	v := newTool(t, y.Env)
	v.must("image-upload", "dv", "uploaded", "--image-path="+file(t, "disk.img", image(16)), "--size=64Mi", "--storage-class="+classImmediate, "--datasource")
	images.importSource("image", images.web.url+"/disk.img")
	images.populate(populated{name: "golden", class: classImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	images.standing("far", cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: images.Namespace, Name: "golden"}})
	images.standing("os", cdiv1.DataSourceSource{DataSource: &cdiv1.DataSourceRefSourceDataSource{Namespace: images.Namespace, Name: "far"}})
	images.grant("team", y.Namespace, cdiv1.SchemeGroupVersion.Group, cdiv1.DataVolumeDataSource)
	images.untilPopulated("golden")
	for _, one := range []struct {
		name, class, src string
		data             []byte
	}{
		{"static", classStatic, images.Namespace + "/os", image(24)},
		{"path", classPath, "uploaded", image(16)},
		{"disk", classDisk, images.Namespace + "/os", image(24)},
	} {
		vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: one.name}}
		if one.class == classPath { // no profile knows the access mode of this class
			y.create(y.templated(one.name, one.class, corev1.TypedObjectReference{Kind: cdiv1.DataVolumeDataSource, Name: one.src}))
		} else {
			apply(y, v.must("create", "vm", "--name="+one.name, "--memory=128Mi", "--termination-grace-period=0",
				"--volume-import=type:ds,src:"+one.src+",name:root,size:128Mi,storageclass:"+one.class))
		}
		y.status(vm, kubevirt.StatusRunning, boot)
		claim := fmt.Sprintf("%s-root", one.name)
		if c := b.claim(claim); c.Annotations[podPhase] != string(corev1.PodSucceeded) {
			t.Errorf("%s: the machine runs, and its claim says %v", claim, c.Annotations)
		}
		b.begins(claim, one.data)
		if err := y.kube.Delete(y.Context(), vm); err != nil { // there are few static volumes
			t.Fatal(err)
		}
	}
}

// TestDataSourceSays: a claim says which DataSource it cannot be filled from and why, and is filled when that is mended.
func TestDataSourceSays(t *testing.T) {
	t.Parallel()
	b, images := newBed(t, framework.Restricted), newBed(t)
	images.importSource("image", images.web.url+"/disk.img")
	images.populate(populated{name: "golden", class: classImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	images.untilPopulated("golden")
	theirs := cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: images.Namespace, Name: "golden"}}
	for name, says := range map[string]string{
		"gone":  "DataSource " + b.Namespace + "/gone doesn't exist",
		"empty": "DataSource " + b.Namespace + "/empty: DataSource " + b.Namespace + "/empty names no source",
		"early": "The source pvc " + b.Namespace + "/not-yet doesn't exist",
		"leads": "it stands for PersistentVolumeClaim " + images.Namespace + "/golden, and no ReferenceGrant in namespace " + images.Namespace,
	} {
		switch name {
		case "empty":
			b.standing(name, cdiv1.DataSourceSource{})
		case "early":
			b.standing(name, cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "not-yet"}})
		case "leads":
			b.standing(name, theirs)
		}
		b.populate(populated{name: name, class: classImmediate, size: "64Mi", kind: cdiv1.DataVolumeDataSource, source: name})
		b.says(name, says)
	}
	images.grant("claims", b.Namespace, "", "PersistentVolumeClaim")
	b.untilPopulated("leads")
	b.begins("leads", image(24))
}
