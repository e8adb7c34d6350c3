//go:build e2e

package e2e

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

	"github.com/berth-vm/berth/test/e2e/framework"
)

const storagePrefix = "cdi.kubevirt.io/storage."

// ordered makes a claim of somebody's that orders something with annotations.
func (b *bed) ordered(name, class string, annotations map[string]string) {
	b.T.Helper()
	b.must(b.kube.Create(b.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: request("64Mi"),
		},
	}))
}

// annotate changes annotations of a claim; nil removes one.
func (b *bed) annotate(claim, patch string) {
	b.T.Helper()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: claim}}
	body := fmt.Sprintf(`{"metadata":{"annotations":{%s}}}`, patch)
	b.must(b.kube.Patch(b.Context(), pvc, client.RawPatch(types.MergePatchType, []byte(body))))
}

// TestImportBareClaim: the oldest interface, annotations on a claim of one's own, fills it as a DataVolume would: on a class that
// waits only when it may, with what clients read while it goes on, and once.
func TestImportBareClaim(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	b.ordered("mine", classWaits, map[string]string{storagePrefix + "import.endpoint": b.web.url + "/disk.img", storagePrefix + "import.source": "http"})
	b.WaitEvent("mine", patience, func(reason, _ string) bool { return reason == "WaitForFirstConsumer" })
	b.idle()
	b.annotate("mine", `"`+immediately+`":""`)
	full := b.untilClaim("mine", "to be full", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[storagePrefix+"pod.phase"] == "Succeeded"
	})
	if a := full.Annotations; a[storagePrefix+"pod.restarts"] != "0" || a[storagePrefix+"import.importPodName"] != "importer-mine" || len(full.OwnerReferences) != 0 {
		t.Errorf("the claim has annotations %v and owners %v", a, full.OwnerReferences)
	}
	b.begins("mine", image(24))
	asked := b.web.requests()
	b.annotate("mine", `"`+storagePrefix+`import.endpoint":null`)
	b.annotate("mine", `"`+storagePrefix+`import.endpoint":"`+b.web.url+`/other.img"`)
	b.idle()
	if b.web.requests() != asked {
		t.Error("a full claim was imported into again")
	}

	b.ordered("wrong", classImmediate, map[string]string{storagePrefix + "import.endpoint": b.web.url + "/none.img"})
	b.WaitEvent("wrong", patience, func(reason, message string) bool { return reason == "Error" && strings.Contains(message, "404") })
	b.WaitEvent("wrong", patience, func(reason, _ string) bool { return reason == "ImportRetrying" })
}

// TestUploadWithdrawn: a claim whose mark is removed loses its worker and what was said of it, and can be deleted at once.
func TestUploadWithdrawn(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	b.ordered("mine", classImmediate, map[string]string{storagePrefix + "upload.target": ""})
	b.untilClaim("mine", "to be ready for its upload", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[storagePrefix+"pod.ready"] == "true"
	})
	b.annotate("mine", `"`+storagePrefix+`upload.target":null`)
	b.Wait("the worker to be gone", patience, func(ctx context.Context) (bool, string) {
		names := b.workers(ctx)
		return len(names) == 0, strings.Join(names, " ")
	})
	b.untilClaim("mine", "to bear no marks", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[storagePrefix+"pod.phase"] == "" && c.Annotations[storagePrefix+"pod.ready"] == "" && c.Annotations["berth.dev/state"] == ""
	})
	pvc := b.claim("mine")
	b.must(b.kube.Delete(b.Context(), pvc))
	b.Wait("the claim to be gone", patience, func(ctx context.Context) (bool, string) {
		err := b.kube.Get(ctx, client.ObjectKeyFromObject(pvc), &corev1.PersistentVolumeClaim{})
		return err != nil && client.IgnoreNotFound(err) == nil, fmt.Sprint(err)
	})
}

// TestVolumeRetained: the worker of a volume that asks for it is there when the import is over, and gone otherwise.
func TestVolumeRetained(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	b.volume(volume{name: "kept", class: classImmediate, storage: "40Mi", annotations: map[string]string{storagePrefix + "pod.retainAfterCompletion": "true"}})
	b.volume(volume{name: "plain", class: classImmediate, storage: "40Mi"})
	b.untilPhase("kept", cdiv1.Succeeded)
	b.untilPhase("plain", cdiv1.Succeeded)
	b.Wait("one worker to be left", patience, func(ctx context.Context) (bool, string) {
		names := b.workers(ctx)
		return len(names) == 1 && names[0] == "importer-kept", strings.Join(names, " ")
	})
	if pod := b.WaitPhase("importer-kept", corev1.PodSucceeded); pod.DeletionTimestamp != nil {
		t.Error("the retained worker is being deleted")
	}
	b.holds("kept", image(24), 40*mib) // it does not keep others from the claim
}

// configure changes the configuration of an image in a registry.
func configure(b *bed, ref string, web *http.Client, change func(*v1.Config)) {
	b.T.Helper()
	to, err := name.ParseReference(ref)
	b.must(err)
	img, err := remote.Image(to, remote.WithTransport(web.Transport))
	b.must(err)
	file, err := img.ConfigFile()
	b.must(err)
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	change(&file.Config)
	img, err = mutate.ConfigFile(img, file)
	b.must(err)
	b.must(remote.Write(to, img, remote.WithTransport(web.Transport)))
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
	b := newBed(t, framework.Restricted)
	url, web := b.secure(login("ada", "secret", registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
	web.Transport = loggedIn{web.Transport}
	b.secret("ada", "secret")
	ref := strings.TrimPrefix(url, "https://") + "/disks/private:1"
	push(b, ref, web)
	configure(b, ref, web, func(*v1.Config) {})
	b.volume(volume{class: classImmediate, storage: "40Mi", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
			URL: ptr("docker://" + ref), CertConfigMap: ptr("roots"), SecretRef: ptr("login"), PullMethod: ptr(cdiv1.RegistryPullNode),
			Platform: &cdiv1.PlatformOptions{Architecture: "amd64"},
		}}
	}})
	b.untilPhase("disk", cdiv1.Succeeded)
	b.holds("disk", image(24), 40*mib)
}

// TestImportSources: a VolumeImportSource of every kind of place, a blank disk, an archive, and all blocks if they are asked for.
func TestImportSources(t *testing.T) {
	t.Parallel()
	fill := func(b *bed, spec cdiv1.VolumeImportSourceSpec) {
		b.create(&cdiv1.VolumeImportSource{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "source"}, Spec: spec})
		b.populate(populated{name: "disk", class: classDiskImmediate, size: "64Mi", kind: "VolumeImportSource", source: "source"})
		b.untilPopulated("disk")
	}
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, framework.Restricted)
			s := place(b)
			fill(b, cdiv1.VolumeImportSourceSpec{Source: &cdiv1.ImportSourceType{HTTP: s.HTTP, S3: s.S3, GCS: s.GCS, Registry: s.Registry}})
			b.begins("disk", image(24))
		})
	}
	t.Run("blank, all of it", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, framework.Restricted)
		fill(b, cdiv1.VolumeImportSourceSpec{Source: &cdiv1.ImportSourceType{Blank: &cdiv1.DataVolumeBlankImage{}}, Preallocation: ptr(true)})
		b.begins("disk", nil)
		if got := b.claim("disk").Annotations[storagePrefix+"preallocation"]; got != "true" {
			t.Errorf("preallocation is %q", got)
		}
	})
	t.Run("archive", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, framework.Restricted)
		var files bytes.Buffer
		w := tar.NewWriter(&files)
		b.must(w.WriteHeader(&tar.Header{Name: "hello", Mode: 0o644, Size: 5, Typeflag: tar.TypeReg}))
		_, err := w.Write([]byte("world"))
		b.must(err)
		b.must(w.Close())
		b.web.put("/files.tar", files.Bytes())
		fill(b, cdiv1.VolumeImportSourceSpec{
			Source: &cdiv1.ImportSourceType{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.web.url + "/files.tar"}}, ContentType: cdiv1.DataVolumeArchive,
		})
		if got := b.Run(framework.Pod{Name: "read", User: guest, Claims: []string{"disk"}, Script: "cat /disk/hello"}); got != "world" {
			t.Errorf("the archive's file holds %q", got)
		}
	})
}

// TestVolumeReserved: a volume that was reserved for the claim before the DataVolume was made may hold what somebody restored. It is
// kept and taken for complete where the DataVolume says so, and written over by nobody where it does not.
func TestVolumeReserved(t *testing.T) {
	t.Parallel()
	b := newBed(t)
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
		b.create(pv)
		t.Cleanup(func() { _ = b.kube.Delete(context.Background(), pv) })
		return pv.Name
	}
	kept := reserve("kept")
	b.volume(volume{name: "kept", class: b.Namespace, size: "64Mi", annotations: map[string]string{storagePrefix + "checkStaticVolume": ""}})
	b.untilPhase("kept", cdiv1.Succeeded)
	c := b.claim("kept")
	if got := c.Annotations[storagePrefix+"persistentVolumeList"]; c.Spec.VolumeName != kept || got != `["`+kept+`"]` {
		t.Errorf("the claim has volume %s and lists %s, want %s", c.Spec.VolumeName, got, kept)
	}
	reserve("unsaid")
	b.volume(volume{name: "unsaid", class: b.Namespace, size: "64Mi"})
	b.WaitEvent("unsaid", patience, func(reason, _ string) bool { return reason == "ErrContentsUnknown" })
	b.idle()
	if b.web.requests() != 0 {
		t.Error("a reserved volume was imported into")
	}
}

// TestVolumeOfAnotherPopulator: a volume that names a source of another populator waits for it and says so.
func TestVolumeOfAnotherPopulator(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	release := b.web.hold()
	b.importSource("image", b.web.url+"/disk.img")
	b.volume(volume{class: classDiskImmediate, storage: "64Mi", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = nil
		dv.Spec.Storage.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "image"}
	}})
	b.untilPhase("disk", cdiv1.PendingPopulation)
	release()
	b.untilPhase("disk", cdiv1.Succeeded)
	b.begins("disk", image(24))
}

// TestVolumeLabels: what an image says about the machine it suits reaches everything that is made of it: the import's claim and
// volume, a DataSource that stands for it, and a clone of that.
func TestVolumeLabels(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	const likes = "instancetype.kubevirt.io/default-instancetype"
	url, web := b.secure(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	ref := strings.TrimPrefix(url, "https://") + "/disks/labelled:1"
	push(b, ref, web)
	configure(b, ref, web, func(c *v1.Config) {
		c.Env = append(c.Env, "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small", "KUBEVIRT_IO_DYNAMIC_CREDENTIALS_SUPPORT=true")
	})
	b.volume(volume{name: "golden", class: classImmediate, storage: "40Mi", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr("docker://" + ref), CertConfigMap: ptr("roots")}}
	}})
	b.until("golden", "to be complete and labelled", func(dv *cdiv1.DataVolume) bool {
		return dv.Status.Phase == cdiv1.Succeeded && dv.Labels[likes] == "u1.small"
	})
	source := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "fedora"},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "golden"}}},
	}
	b.create(source)
	b.Wait("the DataSource to be labelled", patience, func(ctx context.Context) (bool, string) {
		err := b.kube.Get(ctx, client.ObjectKeyFromObject(source), source)
		return err == nil && source.Labels[likes] == "u1.small", fmt.Sprint(err, source.Labels)
	})
	b.volume(volume{name: "copy", class: classImmediate, storage: "40Mi", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source, dv.Spec.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "fedora"}
	}})
	b.until("copy", "to be complete and labelled", func(dv *cdiv1.DataVolume) bool {
		return dv.Status.Phase == cdiv1.Succeeded && dv.Labels[likes] == "u1.small"
	})
	if got := b.claim("copy").Labels; got[likes] != "u1.small" || got["kubevirt.io/dynamic-credentials-support"] != "true" {
		t.Errorf("the clone's claim is labelled %v", got)
	}
}

// TestVolumeWords: the reasons and messages that programs key on are spelt as upstream spells them.
func TestVolumeWords(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	b.volume(volume{name: "golden", class: classImmediate, storage: "40Mi"})
	b.volume(volume{name: "none", class: classImmediate, storage: "40Mi", url: b.web.url + "/none.img"})
	b.volume(volume{name: "orphan", class: classImmediate, storage: "40Mi", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "nothing"}}
	}})
	says := func(dv *cdiv1.DataVolume, kind cdiv1.DataVolumeConditionType, status corev1.ConditionStatus, reason, message string) {
		t.Helper()
		c := condition(dv, kind)
		if c.Status != status || c.Reason != reason || message != "" && c.Message != message {
			t.Errorf("%s of %s is %s, %q, %q; want %s, %q, %q", kind, dv.Name, c.Status, c.Reason, c.Message, status, reason, message)
		}
	}
	done := b.untilPhase("golden", cdiv1.Succeeded)
	says(done, cdiv1.DataVolumeReady, corev1.ConditionTrue, "", "")
	says(done, cdiv1.DataVolumeRunning, corev1.ConditionFalse, "Completed", "Import Complete")
	says(done, cdiv1.DataVolumeBound, corev1.ConditionTrue, "Bound", "PVC golden Bound")
	b.volume(volume{name: "copy", class: classImmediate, storage: "40Mi", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: "golden"}}
	}})
	says(b.untilPhase("copy", cdiv1.Succeeded), cdiv1.DataVolumeRunning, corev1.ConditionFalse, "Completed", "Clone Complete")
	waits := b.until("orphan", "to wait for its source", func(dv *cdiv1.DataVolume) bool { return len(dv.Status.Conditions) == 3 })
	says(waits, cdiv1.DataVolumeBound, corev1.ConditionFalse, "CloneWithoutSource", "")
	b.WaitEvent("none", patience, func(reason, message string) bool { return reason == "Error" && strings.Contains(message, "404") })
	failing := b.until("none", "to have failed once", func(dv *cdiv1.DataVolume) bool {
		return condition(dv, cdiv1.DataVolumeRunning).Reason == "Error"
	})
	says(failing, cdiv1.DataVolumeReady, corev1.ConditionFalse, "ImportRetrying", "")
}
