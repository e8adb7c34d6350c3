package render

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func sameYAML(t *testing.T, name string, obj any) {
	t.Helper()
	got, err := yaml.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, filepath.Join("testdata", name+".yaml"), got)
}

func volume() *cdiv1.DataVolume {
	return &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "disk", UID: "volume-uid", Labels: map[string]string{"vm": "web"},
		Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": "{}",
			"cdi.kubevirt.io/storage.pod.phase":                "Succeeded",
			"note":                                             "kept",
		},
	}}
}

func worker(t *testing.T, source *cdiv1.DataVolumeSource, disk Disk) Worker {
	t.Helper()
	from, err := FromSource(source, Network{HTTPSProxy: "http://proxy:3128"})
	if err != nil {
		t.Fatal(err)
	}
	return Worker{
		Name: WorkerName(RoleImport, "disk"), Namespace: "team", Role: RoleImport, Owner: VolumeOwner(volume()),
		ClaimUID: "claim-uid", VolumeUID: "volume-uid", Attempt: 2, Command: "run", Target: &disk, Secrets: from.Secrets,
		Task: task.Task{Version: task.Version, Volume: "team/disk", Source: from.Source, Checksum: from.Checksum, Target: task.Target{
			Path: disk.TargetPath(task.Disk), Content: task.Disk, Size: 1 << 30,
		}},
		Settings: Settings{Image: "berth", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("600M")},
		}},
	}
}

func TestWorkers(t *testing.T) {
	http := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
		URL: "https://images/disk.qcow2", SecretRef: "login", CertConfigMap: "roots", ExtraHeaders: []string{"X-Tenant: a"},
		SecretExtraHeaders: []string{"one", "two"}, Checksum: "sha256:00",
	}}
	filesystem := worker(t, http, Disk{Claim: "disk"})
	block := worker(t, &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://reg/disk:1")}},
		Disk{Claim: "disk", Block: true})
	block.Source = &Disk{Claim: "golden", Block: true}
	block.Peer = &Peer{Name: "berth-clone", IP: "10.0.0.1"}
	block.Listen = 8443
	for name, w := range map[string]Worker{"worker-filesystem": filesystem, "worker-block": block} {
		pod, err := w.Pod()
		if err != nil {
			t.Fatal(err)
		}
		sameYAML(t, name, pod)
	}
}

func TestClaim(t *testing.T) {
	v := volume()
	c := Claim(metav1.ObjectMeta{
		Namespace: v.Namespace, Name: v.Name, Labels: v.Labels, Annotations: v.Annotations,
		OwnerReferences: []metav1.OwnerReference{VolumeOwner(v)},
	}, corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("local")})
	sameYAML(t, "claim", c)
	if c.Annotations["cdi.kubevirt.io/storage.pod.phase"] != "" {
		t.Error("a new claim looks filled")
	}
}

func TestNamesFit(t *testing.T) {
	long := strings.Repeat("a", 250)
	one, two := WorkerName(RoleImport, long), WorkerName(RoleImport, long+"b")
	if len(one) > longestName || one == two {
		t.Errorf("names %q and %q must be short and differ", one, two)
	}
	if got := WorkerName(RoleUpload, "disk"); got != "cdi-upload-disk" {
		t.Errorf("upload worker is called %q", got)
	}
}

func TestSourcesHideCredentials(t *testing.T) {
	for raw, want := range map[string]string{
		"https://user:pw@images/disk.qcow2?sig=secret": "https://images/disk.qcow2",
		"s3://bucket/disk":          "s3://bucket/disk",
		"http://bad url?key=secret": "http://bad url",
	} {
		if got := Describe(&cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: raw}}); got != want {
			t.Errorf("%q is shown as %q, want %q", raw, got, want)
		}
	}
}

func TestSourcesRefused(t *testing.T) {
	for name, s := range map[string]*cdiv1.DataVolumeSource{
		"none": nil, "empty": {}, "vddk": {VDDK: &cdiv1.DataVolumeSourceVDDK{}}, "imageio": {Imageio: &cdiv1.DataVolumeSourceImageIO{}},
		"image stream": {Registry: &cdiv1.DataVolumeSourceRegistry{ImageStream: ptr.To("stream")}},
	} {
		if _, err := FromSource(s, Network{}); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

func TestInsecureRegistryIsMarked(t *testing.T) {
	from, err := FromSource(&cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://reg:5000/disk")}},
		Network{InsecureRegistries: []string{"reg:5000"}})
	if err != nil || !from.Source.Registry.PlainHTTP {
		t.Errorf("registry %+v, error %v", from.Source.Registry, err)
	}
}

// TestMirroredSource: an image is read from the mirror of its registry, unless it is read with credentials, which are for the registry that is named.
func TestMirroredSource(t *testing.T) {
	n := Network{Mirrors: importsource.Mirrors{{From: "quay.io/disks", To: "reg:5000/mirror"}}, InsecureRegistries: []string{"reg:5000"}}
	for _, c := range []struct {
		source *cdiv1.DataVolumeSourceRegistry
		url    string
		plain  bool
	}{
		{&cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://quay.io/disks/debian@sha256:00")}, "docker://reg:5000/mirror/debian@sha256:00", true},
		{&cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://quay.io/disks/debian:13"), SecretRef: ptr.To("mine")}, "docker://quay.io/disks/debian:13", false},
		{&cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://quay.io/other/debian:13")}, "docker://quay.io/other/debian:13", false},
	} {
		from, err := FromSource(&cdiv1.DataVolumeSource{Registry: c.source}, n)
		if err != nil {
			t.Fatal(err)
		}
		if r := from.Source.Registry; r.URL != c.url || r.PlainHTTP != c.plain {
			t.Errorf("%s is read from %s, without TLS %t", *c.source.URL, r.URL, r.PlainHTTP)
		}
	}
}
