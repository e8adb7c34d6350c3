package datavolume

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

const (
	likes   = "instancetype.kubevirt.io/default-instancetype"
	prefers = "instancetype.kubevirt.io/default-preference"
	keys    = "kubevirt.io/dynamic-credentials-support"
)

// TestLabelsOfTheSource: what suits a source suits its copy, and machines look for it at the volume and its claim. The nearest word
// counts, and of the source's labels only those of kubevirt.io are taken over, but for those that say whose it is and what CDI does with it.
func TestLabelsOfTheSource(t *testing.T) {
	labels := map[string]string{likes: "u1.small", prefers: "fedora", keys: "true", "team": "images",
		"kubevirt.io/created-by": "somebody", "cdi.kubevirt.io/dataImportCron": "weekly"}
	golden := filltest.Bound(filltest.Team, "golden")
	golden.Labels = labels
	snap := snapshotOn(filltest.Team, "", corev1.PersistentVolumeFilesystem)
	snap[0].SetLabels(labels)
	source := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "fedora", Labels: map[string]string{likes: "u1.large"}},
		Spec: cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{
			PVC: &cdiv1.DataVolumeSourcePVC{Namespace: filltest.Team, Name: "golden"},
		}},
	}
	named := newVolume(nil)
	named.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "fedora"}
	own := cloneOf(filltest.Team)
	own.Labels = map[string]string{likes: "mine"}
	image := newVolume(&cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://r/fedora")}})
	done, labelled := []task.Report{filltest.Done()}, filltest.Done()
	labelled.Labels = map[string]string{likes: "u1.small", prefers: "fedora", keys: "true"}
	for name, c := range map[string]struct {
		objects []client.Object
		volume  *cdiv1.DataVolume
		reports []task.Report
		want    map[string]string
	}{
		"of a claim":                {[]client.Object{golden}, cloneOf(filltest.Team), done, map[string]string{likes: "u1.small", prefers: "fedora", keys: "true"}},
		"of a claim, by its driver": {append(filltest.Driver(), golden), cloneOf(filltest.Team), done, map[string]string{likes: "u1.small", prefers: "fedora", keys: "true"}},
		"of a snapshot":             {snap, restoreOf(filltest.Team), done, map[string]string{likes: "u1.small", prefers: "fedora", keys: "true"}},
		"of a DataSource":           {[]client.Object{golden, source}, named, done, map[string]string{likes: "u1.large", prefers: "fedora", keys: "true"}},
		"its own":                   {[]client.Object{golden}, own, done, map[string]string{likes: "mine", prefers: "fedora", keys: "true"}},
		"of an image":               {nil, image, []task.Report{labelled}, map[string]string{likes: "u1.small", prefers: "fedora", keys: "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := filltest.New(t, filltest.Scene{Objects: append(c.objects, filltest.Class(filltest.AtOnce), c.volume), Reports: c.reports})
			w.Run(volumeName, build(w))
			if v := volumeIn(w); v.Status.Phase != cdiv1.Succeeded || !maps.Equal(v.Labels, c.want) {
				t.Errorf("the volume is %s and has %v, want %v", v.Status.Phase, v.Labels, c.want)
			}
			got := maps.Clone(filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName).Labels)
			maps.DeleteFunc(got, func(key, _ string) bool {
				return key != keys && strings.HasPrefix(key, "app") || strings.HasPrefix(key, "alerts")
			})
			if !maps.Equal(got, c.want) {
				t.Errorf("the claim has %v, want %v", got, c.want)
			}
		})
	}
}
