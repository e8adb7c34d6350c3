package fill

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
)

// servedVolume returns a DataVolume whose worker serves the disk that it fills.
func servedVolume(change func(*Seen)) *Seen {
	meta := metav1.ObjectMeta{Namespace: "team", Name: "disk", UID: "u", Annotations: map[string]string{names.BootEarly: "true"}}
	source := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "https://example.com/disk.raw"}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: *meta.DeepCopy()}
	claim.UID = "claim"
	s := &Seen{
		order: Order{For: &cdiv1.DataVolume{ObjectMeta: meta}, Name: "disk", UID: "u", Annotations: meta.Annotations}, source: source, claim: claim,
		worker:   &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		progress: &task.Progress{Percent: 12.3, Done: 123e6, Total: 1000e6, Rate: 31e6, Early: &task.Early{Serves: true, Clients: 1}},
	}
	s.worker.Labels = map[string]string{"berth.dev/claim-uid": "claim"}
	if change != nil {
		change(s)
	}
	return s
}

// TestEarlyIsSaid: a volume says whether a machine can start with it before it is full, how far it is, or why none can.
func TestEarlyIsSaid(t *testing.T) {
	for want, change := range map[string]func(*Seen){
		"booted, 12 % local, 31 MB/s, 28 s left":  nil,
		"a machine can start with it, 12 % local": func(s *Seen) { s.progress.Early.Clients = 0 },
		"the source is waited for: it is away":    func(s *Seen) { s.progress.Early.Away = "it is away" },
		"booted, 12 %": func(s *Seen) {
			s.source = &cdiv1.DataVolumeSource{S3: &cdiv1.DataVolumeSourceS3{URL: "s3://bucket/disk.raw"}}
		},
		"booted, 12": func(s *Seen) {
			s.source = &cdiv1.DataVolumeSource{GCS: &cdiv1.DataVolumeSourceGCS{URL: "gs://bucket/disk.raw"}}
		},
		"booted, 1": func(s *Seen) {
			s.source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://registry/disk")}}
		},
		"before it is full: its image is compressed":  func(s *Seen) { s.progress.Early = &task.Early{Cannot: "its image is compressed"} },
		"volumeMode is Block":                         func(s *Seen) { s.claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) },
		"it is an archive":                            func(s *Seen) { s.order.Spec.ContentType = cdiv1.DataVolumeArchive },
		"not imported from a server":                  func(s *Seen) { s.source = &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}} },
		"ReadWriteOncePod":                            func(s *Seen) { s.claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod} },
		"its claim gets its volume only when that is": func(s *Seen) { s.order.Name = "prime" },
	} {
		if got := (earlyUse{servedVolume(change)}).earlyText(); !strings.Contains(got, want) {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	for name, change := range map[string]func(*Seen){
		"nobody asked for it":  func(s *Seen) { s.order.Annotations, s.claim.Annotations = nil, nil },
		"it is not served yet": func(s *Seen) { s.progress.Early = nil },
	} {
		if got := (earlyUse{servedVolume(change)}).earlyText(); got != "" {
			t.Errorf("%s: it says %q", name, got)
		}
	}
}

// TestServedOn: the claim says where its disk is served as long as it is, and as long as nothing newer is known.
func TestServedOn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Seen)
		was    string
		want   string
	}{
		"served":           {want: "node1"},
		"not served":       {change: func(s *Seen) { s.progress.Early = nil }, was: "node1"},
		"no word":          {change: func(s *Seen) { s.progress = nil }, was: "node1", want: "node1"},
		"the worker ended": {change: func(s *Seen) { s.worker.Status.Phase = corev1.PodFailed }, was: "node1"},
	} {
		m := marks{}
		if c.was != "" {
			m[names.ServedOn] = c.was
		}
		if (earlyUse{servedVolume(c.change)}).markServed(m); m[names.ServedOn] != c.want {
			t.Errorf("%s: %q, want %q", name, m[names.ServedOn], c.want)
		}
	}
}

// TestSaidElsewhere: the first worker of a DataVolume is not recorded on its claim while it succeeds, unless a client reads it there.
func TestSaidElsewhere(t *testing.T) {
	plain := func(s *Seen) { s.progress.Early = nil }
	for name, c := range map[string]struct {
		change func(*Seen)
		phase  corev1.PodPhase
		want   bool
	}{
		"is placed":                   {plain, corev1.PodPending, true},
		"runs":                        {plain, corev1.PodRunning, true},
		"failed":                      {plain, corev1.PodFailed, false},
		"a machine may start":         {nil, corev1.PodRunning, false},
		"after another":               {func(s *Seen) { plain(s); s.claim.Annotations[names.PodPhase] = "Failed" }, corev1.PodRunning, false},
		"waits for an upload":         {func(s *Seen) { s.source = &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}} }, corev1.PodRunning, false},
		"fills a prime, is placed":    {func(s *Seen) { s.order.For = &corev1.PersistentVolumeClaim{} }, corev1.PodPending, true},
		"fills a prime":               {func(s *Seen) { s.order.For = &corev1.PersistentVolumeClaim{} }, corev1.PodRunning, false},
		"fills a claim of somebody's": {func(s *Seen) { s.order.For = s.claim }, corev1.PodPending, false},
	} {
		if got := servedVolume(c.change).saidElsewhere(c.phase); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
