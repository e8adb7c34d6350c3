package fill

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
)

// TestPhaseBetweenTries: from the first failed try of an import on clients see a pod that runs; an upload that failed is not to be sent to.
func TestPhaseBetweenTries(t *testing.T) {
	upload, web := &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}, &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{}}
	for name, row := range map[string]struct {
		source   *cdiv1.DataVolumeSource
		restarts string
		fact     volume.Worker
		want     corev1.PodPhase
	}{
		"first try, placed":       {web, "", volume.Pending, corev1.PodPending},
		"first try failed":        {web, "", volume.Failed, corev1.PodRunning},
		"second try, placed":      {web, "1", volume.Pending, corev1.PodRunning},
		"second try, unplaceable": {web, "1", volume.Unplaceable, corev1.PodRunning},
		"upload failed":           {upload, "", volume.Failed, corev1.PodFailed},
		"upload, again":           {upload, "1", volume.Pending, corev1.PodPending},
	} {
		s := &Seen{source: row.source, claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.Restarts: row.restarts}}}}
		if got := s.phaseBetween(row.fact); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

// TestImagePullFailed: an image that its registry does not give is told from other errors by the Running condition, as clients know it.
func TestImagePullFailed(t *testing.T) {
	registry := &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://r/none")}}
	web := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://r/none"}}
	for name, row := range map[string]struct {
		source *cdiv1.DataVolumeSource
		reason task.Reason
		want   string
	}{
		"no such image":      {registry, task.SourceNotFound, "ImagePullFailed"},
		"no rights":          {registry, task.SourceDenied, "ImagePullFailed"},
		"no registry":        {registry, task.SourceUnreachable, "ImagePullFailed"},
		"a broken disk":      {registry, task.TargetFailed, "Error"},
		"no such file":       {web, task.SourceNotFound, "Error"},
		"stopped, half-read": {registry, task.Interrupted, "Error"},
	} {
		s := &Seen{source: row.source, claim: &corev1.PersistentVolumeClaim{}, worker: &corev1.Pod{}, report: &task.Report{Reason: row.reason, Detail: "why"}}
		said := message{s}.state(state.Import.Reason(state.Retrying), volume.Facts{Worker: volume.Failed})
		if said.RunReason() != row.want || said.Reason != "ImportRetrying" {
			t.Errorf("%s: Running says %s, the event %s", name, said.RunReason(), said.Reason)
		}
	}
}

// TestPreallocationIsMarked: on disks, also blank ones on a device; not on archives, whose files take what they need.
func TestPreallocationIsMarked(t *testing.T) {
	blank := &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
	for name, row := range map[string]struct {
		spec cdiv1.DataVolumeSpec
		want string
	}{
		"a blank disk": {cdiv1.DataVolumeSpec{Source: blank, Preallocation: ptr.To(true)}, "true"},
		"an archive":   {cdiv1.DataVolumeSpec{ContentType: cdiv1.DataVolumeArchive, Preallocation: ptr.To(true)}, ""},
		"not asked":    {cdiv1.DataVolumeSpec{Source: blank}, ""},
	} {
		m := marks{}
		s := &Seen{order: Order{Spec: row.spec}, report: &task.Report{}, wanted: corev1.PersistentVolumeClaimSpec{VolumeMode: ptr.To(corev1.PersistentVolumeBlock)}}
		if s.done(m); m[names.Preallocate] != row.want {
			t.Errorf("%s: marked %q, want %q", name, m[names.Preallocate], row.want)
		}
	}
}
