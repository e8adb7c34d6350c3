//go:build e2e

package populate

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

const storagePrefix = "cdi.kubevirt.io/storage."

// ordered makes a user's claim that asks for a fill with annotations.
func ordered(b *fixture.Volumes, name, class string, annotations map[string]string) {
	b.T.Helper()
	b.NoError(b.Kube.Create(b.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: fixture.StorageRequest("64Mi"),
		},
	}))
}

// annotate changes annotations of a claim; nil removes one.
func annotate(b *fixture.Volumes, claim, patch string) {
	b.T.Helper()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: claim}}
	body := fmt.Sprintf(`{"metadata":{"annotations":{%s}}}`, patch)
	b.NoError(b.Kube.Patch(b.Context(), pvc, client.RawPatch(types.MergePatchType, []byte(body))))
}

// TestImportBareClaim: the oldest interface, annotations on a claim of one's own, fills it as a DataVolume would: on a class that
// waits only when it may, with what clients read while it continues, and once.
func TestImportBareClaim(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	ordered(b, "mine", fixture.ClassWaits, map[string]string{storagePrefix + "import.endpoint": b.Web.URL + "/disk.img", storagePrefix + "import.source": "http"})
	b.WaitEvent("mine", fixture.Patience, func(reason, _ string) bool { return reason == "WaitForFirstConsumer" })
	b.StaysWithoutWorkers()
	annotate(b, "mine", `"`+fixture.BindImmediately+`":""`)
	full := b.UntilClaim("mine", "to be full", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[storagePrefix+"pod.phase"] == "Succeeded"
	})
	if a := full.Annotations; a[storagePrefix+"pod.restarts"] != "0" || a[storagePrefix+"import.importPodName"] != "importer-mine" || len(full.OwnerReferences) != 0 {
		t.Errorf("the claim has annotations %v and owners %v", a, full.OwnerReferences)
	}
	b.BeginsWith("mine", fixture.DiskImage(24))
	asked := b.Web.Requests()
	annotate(b, "mine", `"`+storagePrefix+`import.endpoint":null`)
	annotate(b, "mine", `"`+storagePrefix+`import.endpoint":"`+b.Web.URL+`/other.img"`)
	b.StaysWithoutWorkers()
	if b.Web.Requests() != asked {
		t.Error("a full claim was imported into again")
	}

	ordered(b, "wrong", fixture.ClassImmediate, map[string]string{storagePrefix + "import.endpoint": b.Web.URL + "/none.img"})
	b.WaitEvent("wrong", fixture.Patience, func(reason, message string) bool { return reason == "Error" && strings.Contains(message, "404") })
	b.WaitEvent("wrong", fixture.Patience, func(reason, _ string) bool { return reason == "ImportRetrying" })
}

// TestUploadWithdrawn: a claim whose mark is removed loses its worker and what was said of it, and can be deleted at once.
func TestUploadWithdrawn(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	ordered(b, "mine", fixture.ClassImmediate, map[string]string{storagePrefix + "upload.target": ""})
	b.UntilClaim("mine", "to be ready for its upload", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[storagePrefix+"pod.ready"] == "true"
	})
	annotate(b, "mine", `"`+storagePrefix+`upload.target":null`)
	b.Wait("the worker to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
		names := b.WorkersOf(ctx)
		return len(names) == 0, strings.Join(names, " ")
	})
	b.UntilClaim("mine", "to bear no marks", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[storagePrefix+"pod.phase"] == "" && c.Annotations[storagePrefix+"pod.ready"] == "" && c.Annotations["berth.dev/state"] == ""
	})
	pvc := b.ReadClaim("mine")
	b.NoError(b.Kube.Delete(b.Context(), pvc))
	b.Wait("the claim to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := b.Kube.Get(ctx, client.ObjectKeyFromObject(pvc), &corev1.PersistentVolumeClaim{})
		return err != nil && client.IgnoreNotFound(err) == nil, fmt.Sprint(err)
	})
}

// TestVolumeRetained: the worker of a volume that asks for it is there when the import is over, and gone otherwise.
func TestVolumeRetained(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	b.CreateVolume(fixture.Volume{Name: "kept", Class: fixture.ClassImmediate, Storage: "40Mi", Annotations: map[string]string{storagePrefix + "pod.retainAfterCompletion": "true"}})
	b.CreateVolume(fixture.Volume{Name: "plain", Class: fixture.ClassImmediate, Storage: "40Mi"})
	b.UntilPhase("kept", cdiv1.Succeeded)
	b.UntilPhase("plain", cdiv1.Succeeded)
	b.Wait("one worker to be left", fixture.Patience, func(ctx context.Context) (bool, string) {
		names := b.WorkersOf(ctx)
		return len(names) == 1 && names[0] == "importer-kept", strings.Join(names, " ")
	})
	if pod := b.WaitPhase("importer-kept", corev1.PodSucceeded); pod.DeletionTimestamp != nil {
		t.Error("the retained worker is being deleted")
	}
	b.Holds("kept", fixture.DiskImage(24), 40*fixture.MiB) // it does not keep others from the claim
}

// configure changes the configuration of an image in a registry.
func configure(b *fixture.Volumes, ref string, web *http.Client, change func(*v1.Config)) {
	b.T.Helper()
	to, err := name.ParseReference(ref)
	b.NoError(err)
	img, err := remote.Image(to, remote.WithTransport(web.Transport))
	b.NoError(err)
	file, err := img.ConfigFile()
	b.NoError(err)
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	change(&file.Config)
	img, err = mutate.ConfigFile(img, file)
	b.NoError(err)
	b.NoError(remote.Write(to, img, remote.WithTransport(web.Transport)))
}

// loggedIn is a transport that says who it is.
type loggedIn struct{ http.RoundTripper }

func (l loggedIn) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.SetBasicAuth("ada", "secret")
	return l.RoundTripper.RoundTrip(r)
}

// TestRegistryOptions: an image of a registry that wants to know who asks, pulled as upstream's node would, for one architecture.
func TestRegistryOptions(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	url, web := b.ServeSecurely(fixture.RequireLogin("ada", "secret", registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
	web.Transport = loggedIn{web.Transport}
	b.CreateLoginSecret("ada", "secret")
	ref := strings.TrimPrefix(url, "https://") + "/disks/private:1"
	fixture.PushContainerDisk(b, ref, web)
	configure(b, ref, web, func(*v1.Config) {})
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
			URL: fixture.Ptr("docker://" + ref), CertConfigMap: fixture.Ptr("roots"), SecretRef: fixture.Ptr("login"), PullMethod: fixture.Ptr(cdiv1.RegistryPullNode),
			Platform: &cdiv1.PlatformOptions{Architecture: "amd64"},
		}}
	}})
	b.UntilPhase("disk", cdiv1.Succeeded)
	b.Holds("disk", fixture.DiskImage(24), 40*fixture.MiB)
}

// TestImportSources: a VolumeImportSource of every kind of place, a blank disk, an archive, and all blocks if they are asked for.
func TestImportSources(t *testing.T) {
	t.Parallel()
	fill := func(b *fixture.Volumes, spec cdiv1.VolumeImportSourceSpec) {
		b.CreateObject(&cdiv1.VolumeImportSource{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "source"}, Spec: spec})
		populate(b, populated{name: "disk", class: fixture.ClassDiskImmediate, size: "64Mi", kind: "VolumeImportSource", source: "source"})
		b.UntilPopulated("disk")
	}
	for name, place := range fixture.ImportSources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.NewVolumes(t, framework.Restricted)
			s := place(b)
			fill(b, cdiv1.VolumeImportSourceSpec{Source: &cdiv1.ImportSourceType{HTTP: s.HTTP, S3: s.S3, GCS: s.GCS, Registry: s.Registry}})
			b.BeginsWith("disk", fixture.DiskImage(24))
		})
	}
	t.Run("blank, all of it", func(t *testing.T) {
		t.Parallel()
		b := fixture.NewVolumes(t, framework.Restricted)
		fill(b, cdiv1.VolumeImportSourceSpec{Source: &cdiv1.ImportSourceType{Blank: &cdiv1.DataVolumeBlankImage{}}, Preallocation: fixture.Ptr(true)})
		b.BeginsWith("disk", nil)
		if got := b.ReadClaim("disk").Annotations[storagePrefix+"preallocation"]; got != "true" {
			t.Errorf("preallocation is %q", got)
		}
	})
	t.Run("archive", func(t *testing.T) {
		t.Parallel()
		b := fixture.NewVolumes(t, framework.Restricted)
		var files bytes.Buffer
		w := tar.NewWriter(&files)
		b.NoError(w.WriteHeader(&tar.Header{Name: "hello", Mode: 0o644, Size: 5, Typeflag: tar.TypeReg}))
		_, err := w.Write([]byte("world"))
		b.NoError(err)
		b.NoError(w.Close())
		b.Web.Put("/files.tar", files.Bytes())
		fill(b, cdiv1.VolumeImportSourceSpec{
			Source: &cdiv1.ImportSourceType{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.Web.URL + "/files.tar"}}, ContentType: cdiv1.DataVolumeArchive,
		})
		if got := b.Run(framework.Pod{Name: "read", User: fixture.GuestUser, Claims: []string{"disk"}, Script: "cat /disk/hello"}); got != "world" {
			t.Errorf("the archive's file holds %q", got)
		}
	})
}

// TestVolumeReserved: a volume that was reserved for the claim before the DataVolume was made may hold restored data. It is kept
// and counts as complete if the DataVolume says so, and is never overwritten if it does not.
func TestVolumeReserved(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	reserve := func(name string) string {
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: b.Namespace + "-" + name},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: b.Namespace, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/" + b.Namespace}},
				ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: b.Namespace, Name: name},
			},
		}
		b.CreateObject(pv)
		t.Cleanup(func() { _ = b.Kube.Delete(context.Background(), pv) })
		return pv.Name
	}
	kept := reserve("kept")
	b.CreateVolume(fixture.Volume{Name: "kept", Class: b.Namespace, Size: "64Mi", Annotations: map[string]string{storagePrefix + "checkStaticVolume": ""}})
	b.UntilPhase("kept", cdiv1.Succeeded)
	c := b.ReadClaim("kept")
	if got := c.Annotations[storagePrefix+"persistentVolumeList"]; c.Spec.VolumeName != kept || got != `["`+kept+`"]` {
		t.Errorf("the claim has volume %s and lists %s, want %s", c.Spec.VolumeName, got, kept)
	}
	reserve("unsaid")
	b.CreateVolume(fixture.Volume{Name: "unsaid", Class: b.Namespace, Size: "64Mi"})
	b.WaitEvent("unsaid", fixture.Patience, func(reason, _ string) bool { return reason == "ErrContentsUnknown" })
	b.StaysWithoutWorkers()
	if b.Web.Requests() != 0 {
		t.Error("a reserved volume was imported into")
	}
}

// TestVolumeOfAnotherPopulator: a volume that names a source of another populator waits for it and says so.
func TestVolumeOfAnotherPopulator(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	release := b.Web.Hold()
	importSource(b, "image", b.Web.URL+"/disk.img")
	b.CreateVolume(fixture.Volume{Class: fixture.ClassDiskImmediate, Storage: "64Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = nil
		dv.Spec.Storage.DataSourceRef = &corev1.TypedObjectReference{APIGroup: fixture.Ptr("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "image"}
	}})
	b.UntilPhase("disk", cdiv1.PendingPopulation)
	release()
	b.UntilPhase("disk", cdiv1.Succeeded)
	b.BeginsWith("disk", fixture.DiskImage(24))
}

// TestVolumeLabels: what an image says about the machine it suits reaches everything that is made of it: the import's claim and
// volume, a DataSource that stands for it, and a clone of that.
func TestVolumeLabels(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	const likes = "instancetype.kubevirt.io/default-instancetype"
	url, web := b.ServeSecurely(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	ref := strings.TrimPrefix(url, "https://") + "/disks/labelled:1"
	fixture.PushContainerDisk(b, ref, web)
	configure(b, ref, web, func(c *v1.Config) {
		c.Env = append(c.Env, "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small", "KUBEVIRT_IO_DYNAMIC_CREDENTIALS_SUPPORT=true")
	})
	b.CreateVolume(fixture.Volume{Name: "golden", Class: fixture.ClassImmediate, Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: fixture.Ptr("docker://" + ref), CertConfigMap: fixture.Ptr("roots")}}
	}})
	b.Until("golden", "to be complete and labelled", func(dv *cdiv1.DataVolume) bool {
		return dv.Status.Phase == cdiv1.Succeeded && dv.Labels[likes] == "u1.small"
	})
	source := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "fedora"},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "golden"}}},
	}
	b.CreateObject(source)
	b.Wait("the DataSource to be labelled", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := b.Kube.Get(ctx, client.ObjectKeyFromObject(source), source)
		return err == nil && source.Labels[likes] == "u1.small", fmt.Sprint(err, source.Labels)
	})
	b.CreateVolume(fixture.Volume{Name: "copy", Class: fixture.ClassImmediate, Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source, dv.Spec.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "fedora"}
	}})
	b.Until("copy", "to be complete and labelled", func(dv *cdiv1.DataVolume) bool {
		return dv.Status.Phase == cdiv1.Succeeded && dv.Labels[likes] == "u1.small"
	})
	if got := b.ReadClaim("copy").Labels; got[likes] != "u1.small" || got["kubevirt.io/dynamic-credentials-support"] != "true" {
		t.Errorf("the clone's claim is labelled %v", got)
	}
}

// TestVolumeWords: the reasons and messages that programs key on are spelt as upstream spells them.
func TestVolumeWords(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	b.CreateVolume(fixture.Volume{Name: "golden", Class: fixture.ClassImmediate, Storage: "40Mi"})
	b.CreateVolume(fixture.Volume{Name: "none", Class: fixture.ClassImmediate, Storage: "40Mi", URL: b.Web.URL + "/none.img"})
	b.CreateVolume(fixture.Volume{Name: "orphan", Class: fixture.ClassImmediate, Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "nothing"}}
	}})
	says := func(dv *cdiv1.DataVolume, kind cdiv1.DataVolumeConditionType, status corev1.ConditionStatus, reason, message string) {
		t.Helper()
		c := fixture.ConditionOf(dv, kind)
		if c.Status != status || c.Reason != reason || message != "" && c.Message != message {
			t.Errorf("%s of %s is %s, %q, %q; want %s, %q, %q", kind, dv.Name, c.Status, c.Reason, c.Message, status, reason, message)
		}
	}
	done := b.UntilPhase("golden", cdiv1.Succeeded)
	says(done, cdiv1.DataVolumeReady, corev1.ConditionTrue, "", "")
	says(done, cdiv1.DataVolumeRunning, corev1.ConditionFalse, "Completed", "Import Complete")
	says(done, cdiv1.DataVolumeBound, corev1.ConditionTrue, "Bound", "PVC golden Bound")
	b.CreateVolume(fixture.Volume{Name: "copy", Class: fixture.ClassImmediate, Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "golden"}}
	}})
	says(b.UntilPhase("copy", cdiv1.Succeeded), cdiv1.DataVolumeRunning, corev1.ConditionFalse, "Completed", "Clone Complete")
	waits := b.Until("orphan", "to wait for its source", func(dv *cdiv1.DataVolume) bool { return len(dv.Status.Conditions) == 3 })
	says(waits, cdiv1.DataVolumeBound, corev1.ConditionFalse, "CloneWithoutSource", "")
	b.WaitEvent("none", fixture.Patience, func(reason, message string) bool { return reason == "Error" && strings.Contains(message, "404") })
	failing := b.Until("none", "to have failed once", func(dv *cdiv1.DataVolume) bool {
		return fixture.ConditionOf(dv, cdiv1.DataVolumeRunning).Reason == "Error"
	})
	says(failing, cdiv1.DataVolumeReady, corev1.ConditionFalse, "ImportRetrying", "")
}
