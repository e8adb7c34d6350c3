//go:build e2e

package populate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestVolumeTells: the events that clients know, each of a volume that it happens to.
func TestVolumeTells(t *testing.T) {
	t.Parallel()
	d := fixture.NewUploads(fixture.NewVolumes(t))
	release := d.Web.Hold()
	d.CreateVolume(fixture.Volume{Name: "golden", Class: fixture.ClassDiskImmediate, Size: "64Mi"})
	d.HasEvents("golden", "ImportScheduled", "ImportInProgress")
	release()
	d.HasEvents("golden", "ImportSucceeded")
	d.UntilPhase("golden", cdiv1.Succeeded)

	d.CreateVolume(fixture.CloneOf("driven", fixture.ClassDiskImmediate, "64Mi", false, d.SourceClaim()))
	d.HasEvents("driven", "CSICloneInProgress", "CloneSucceeded")
	d.Consume("golden", "")
	d.WaitRunning("consumer-golden")
	d.CreateVolume(fixture.CloneOf("snapped", fixture.ClassDiskImmediate, "64Mi", false, d.SourceClaim()))
	d.HasEvents("snapped", "SnapshotForSmartCloneInProgress", "CloneSucceeded")
	d.Delete("consumer-golden")
	fixture.TakeSnapshot(d.Env, "kept", "golden") // into a device it is restored by way of another claim, which takes a moment
	kept := cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: d.Namespace, Name: "kept"}}
	d.CreateVolume(fixture.CloneOf("turned", fixture.ClassDiskImmediate, "64Mi", true, kept))
	d.HasEvents("turned", "CloneFromSnapshotSourceInProgress", "CloneSucceeded")
	d.CreateVolume(fixture.Volume{Name: "plain", Class: fixture.ClassImmediate, Storage: "40Mi"})
	d.UntilPhase("plain", cdiv1.Succeeded)
	fromPlain := cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: d.Namespace, Name: "plain"}}
	d.Consume("plain", "")
	d.WaitRunning("consumer-plain")
	d.CreateVolume(fixture.CloneOf("busy", fixture.ClassImmediate, "64Mi", false, fromPlain))
	d.HasEvents("busy", "CloneSourceInUse")
	d.Delete("consumer-plain")
	d.HasEvents("busy", "CloneScheduled", "CloneSucceeded")
	d.CreateVolume(fixture.Volume{Name: "orphan", Class: fixture.ClassImmediate, Size: "64Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: d.Namespace, Name: "nothing"}}
	}})
	d.HasEvents("orphan", "CloneWithoutSource")
	d.CreateVolume(fixture.CloneOf("smaller", fixture.ClassImmediate, "8Mi", false, fromPlain))
	d.HasEvents("smaller", "ErrIncompatiblePVC", "CloneValidationFailed")
	d.WaitBound("smaller")
	d.CreateVolume(fixture.Volume{Name: "tight", Class: fixture.ClassImmediate, Storage: "8Mi"})
	d.HasEvents("tight", "ImportFailed", "Error")

	ordered(d.Volumes, "theirs", fixture.ClassImmediate, nil)
	d.WaitBound("theirs")
	d.CreateVolume(fixture.Volume{Name: "theirs", Class: fixture.ClassImmediate, Size: "64Mi", Annotations: map[string]string{"cdi.kubevirt.io/storage.prePopulated": "another"}})
	d.HasEvents("theirs", "ErrResourceExists")
	ordered(d.Volumes, "less", fixture.ClassImmediate, nil)
	d.WaitBound("less")
	d.CreateVolume(fixture.Volume{Name: "less", Class: fixture.ClassImmediate, Size: "96Mi", Annotations: map[string]string{"cdi.kubevirt.io/allowClaimAdoption": "true"}})
	d.HasEvents("less", "ErrIncompatiblePVC")

	importSource(d.Volumes, "image", d.Web.URL+"/disk.img")
	d.CreateVolume(fixture.Volume{Name: "outside", Class: fixture.ClassDiskImmediate, Storage: "64Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = nil
		dv.Spec.Storage.DataSourceRef = &corev1.TypedObjectReference{APIGroup: fixture.Ptr("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "image"}
	}})
	d.HasEvents("outside", "ExternalPopulationSucceeded")
	if got := d.ReadClaim("outside").Annotations["cdi.kubevirt.io/externalPopulation"]; got != "true" {
		t.Errorf("externalPopulation is %q", got)
	}

	d.CreateUpload("sent", "40Mi")
	d.HasEvents("sent", "UploadScheduled", "UploadReady")
	if got := d.ReadClaim("sent").Annotations["cdi.kubevirt.io/storage.uploadPodName"]; got != "cdi-upload-sent" {
		t.Errorf("uploadPodName is %q", got)
	}
	d.Answers("200", "", d.RequestToken("sent"), "/v1beta1/upload", "-T", d.WriteFile("disk.img", fixture.DiskImage(8)))
	d.HasEvents("sent", "UploadSucceeded")
	d.UntilPhase("sent", cdiv1.Succeeded)

	d.Consume("sent", "")
	d.WaitRunning("consumer-sent")
	d.NoError(d.Kube.Delete(d.Context(), d.ReadClaim("sent")))
	d.HasEvents("sent", "ErrResourceMarkedForDeletion")
	d.Delete("consumer-sent")
}

// TestCloneTells: the events of clones that cannot be: one whose disk does not fit, and one of a snapshot that no class can restore.
func TestCloneTells(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	b.Create(framework.Claim{Name: "golden", Class: fixture.ClassImmediate, Size: "64Mi"})
	b.Run(framework.Pod{Name: "make", User: fixture.GuestUser, Claims: []string{"golden"}, Script: "truncate -s 100M /golden/disk.img"})
	b.CreateVolume(fixture.CloneOf("tight", fixture.ClassDiskImmediate, "64Mi", true, b.SourceClaim())) // nobody measured that disk, so only the copy shows that the device is too small
	b.HasEvents("tight", "CloneFailed", "Error")
	b.UntilPhase("tight", cdiv1.Failed)

	group := schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}
	kept := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"source": map[string]any{"volumeSnapshotContentName": b.Namespace}}}}
	kept.SetGroupVersionKind(group.WithKind("VolumeSnapshot"))
	kept.SetNamespace(b.Namespace)
	kept.SetName("kept")
	content := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"driver": "nobody.example", "deletionPolicy": "Retain", "source": map[string]any{"snapshotHandle": "none"},
		"volumeSnapshotRef": map[string]any{"namespace": b.Namespace, "name": "kept"},
	}}}
	content.SetGroupVersionKind(group.WithKind("VolumeSnapshotContent"))
	content.SetName(b.Namespace)
	b.NoError(b.Kube.Create(b.Context(), content))
	b.NoError(b.Kube.Create(b.Context(), kept))
	t.Cleanup(func() {
		for _, u := range []*unstructured.Unstructured{kept, content} {
			_ = b.Kube.Patch(context.Background(), u, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			if err := client.IgnoreNotFound(b.Kube.Delete(context.Background(), u)); err != nil {
				t.Error(err)
			}
		}
	})
	b.CreateVolume(fixture.CloneOf("restored", fixture.ClassDiskImmediate, "64Mi", false, cdiv1.DataVolumeSource{
		Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: b.Namespace, Name: "kept"},
	}))
	b.Wait("the clone to be refused", fixture.Patience, func(ctx context.Context) (bool, string) {
		// There is no such driver, so no controller marks the snapshot as ready.
		status := `{"status":{"readyToUse":true,"restoreSize":"64Mi","boundVolumeSnapshotContentName":"` + b.Namespace + `"}}`
		err := b.Kube.Status().Patch(ctx, kept, client.RawPatch(types.MergePatchType, []byte(status)))
		dv := b.ReadVolume("restored")
		return strings.Contains(fixture.ReadyMessageOf(dv), "no storage class of nobody.example can restore"), fmt.Sprint(fixture.ReadyMessageOf(dv), err)
	})
	b.HasEvents("restored", "CloneValidationFailed")
}

// TestPopulateAnnotations: what a claim that populates itself says in annotations while it does, and the events.
func TestPopulateAnnotations(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	release := b.Web.Hold()
	importSource(b, "image", b.Web.URL+"/disk.img")
	populate(b, populated{name: "disk", class: fixture.ClassDiskImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	// what the worker's own claim shows follows one write later
	c := b.UntilClaim("disk", "to be filled", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["cdi.kubevirt.io/storage.condition.running"] == "true" && c.Annotations["cdi.kubevirt.io/storage.pod.phase"] == "Running"
	})
	for key, want := range map[string]string{
		"storage.populator.kind": "VolumeImportSource", "storage.populator.pvcPrime": "prime-" + string(c.UID), "storage.condition.bound": "false",
		"storage.condition.running.reason": "Pod is running", "storage.pod.restarts": "0",
	} {
		if got := c.Annotations["cdi.kubevirt.io/"+key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if got := c.Annotations["cdi.kubevirt.io/storage.populator.progress"]; got != "N/A" && !strings.HasSuffix(got, "%") {
		t.Errorf("progress is %q", got)
	}
	release()
	b.UntilPopulated("disk")
	b.HasEvents("disk", "RebindInProgress")
}

// TestWorkerOptions: a worker's pod has the options of the claim's annotations and the volume's spec.
func TestWorkerOptions(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	b.NoError(b.Kube.Create(b.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "mover"}}))
	b.NoError(b.Kube.Create(b.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "login"}, StringData: map[string]string{"accessKeyId": "ada", "secretKey": "secret"},
	}))
	release := b.Web.Hold()
	defer release()
	url := b.Serve(fixture.RequireLogin("ada", "secret", b.Web))
	ordered(b, "mine", fixture.ClassDiskImmediate, map[string]string{
		storagePrefix + "import.endpoint": url + "/disk.img", storagePrefix + "import.secretName": "login",
		storagePrefix + "pod.serviceAccountName": "mover", storagePrefix + "pod.priorityclassname": "system-node-critical",
		storagePrefix + "preallocation.requested": "true",
	})
	b.CreateVolume(fixture.Volume{Name: "disk", Class: fixture.ClassImmediate, Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) { dv.Spec.ServiceAccountName = "mover" }})
	dv := b.UntilPhase("disk", cdiv1.ImportInProgress)
	for _, name := range []string{"importer-mine", "importer-disk"} {
		pod := b.WaitRunning(name)
		if pod.Spec.ServiceAccountName != "mover" || pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
			t.Errorf("%s runs as %q with a token: %v", name, pod.Spec.ServiceAccountName, pod.Spec.AutomountServiceAccountToken)
		}
		if name == "importer-mine" && pod.Spec.PriorityClassName != "system-node-critical" {
			t.Errorf("%s has priority %q", name, pod.Spec.PriorityClassName)
		}
		if name == "importer-disk" && pod.Labels["cdi.kubevirt.io/OwnedByUID"] != string(dv.UID) {
			t.Errorf("%s is labelled %v", name, pod.Labels)
		}
	}
	release()
	c := b.UntilClaim("mine", "to be full", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[fixture.PodPhaseAnnotation] == "Succeeded"
	})
	if got := c.Annotations[storagePrefix+"preallocation"]; got != "true" {
		t.Errorf("preallocation is %q", got)
	}
	b.UntilPhase("disk", cdiv1.Succeeded)
}

// TestCronSays: a DataImportCron's status, the account that its imports run as, and that they are deleted with it unless they should stay.
func TestCronSays(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	b.NoError(b.Kube.Create(b.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "mover"}}))
	class, retain, collect := fixture.ClassImmediate, cdiv1.DataImportCronRetainNone, cdiv1.DataImportCronGarbageCollectOutdated
	release := b.Web.Hold()
	defer release()
	cron := &cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "images"},
		Spec: cdiv1.DataImportCronSpec{
			Schedule: "0 0 1 1 *", ManagedDataSource: "os", RetentionPolicy: &retain, GarbageCollect: &collect, ServiceAccountName: fixture.Ptr("mover"),
			Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
				Source:  &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.Web.URL + "/disk.img"}},
				Storage: &cdiv1.StorageSpec{StorageClassName: &class, Resources: fixture.StorageRequest("40Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
			}},
		},
	}
	b.CreateObject(cron)
	says := func(what string, is func(s *cdiv1.DataImportCronStatus) bool) {
		t.Helper()
		b.Wait("the cron to say "+what, fixture.Patience, func(ctx context.Context) (bool, string) {
			err := b.Kube.Get(ctx, client.ObjectKeyFromObject(cron), cron)
			return err == nil && is(&cron.Status), fmt.Sprintf("%+v %v", cron.Status, err)
		})
	}
	state := func(s *cdiv1.DataImportCronStatus, kind cdiv1.DataImportCronConditionType) string {
		for _, c := range s.Conditions {
			if c.Type == kind {
				return string(c.Status) + " " + c.Reason
			}
		}
		return ""
	}
	says("that it imports", func(s *cdiv1.DataImportCronStatus) bool {
		return state(s, cdiv1.DataImportCronProgressing) == "True ImportProgressing" && len(s.CurrentImports) == 1 && s.CurrentImports[0].Digest != ""
	})
	name := cron.Status.CurrentImports[0].DataVolumeName
	if pod := b.WaitRunning("importer-" + name); pod.Spec.ServiceAccountName != "mover" {
		t.Errorf("the import runs as %q", pod.Spec.ServiceAccountName)
	}
	if got := b.ReadVolume(name).Labels["cdi.kubevirt.io/dataImportCron"]; got != "images" {
		t.Errorf("the import is labelled for cron %q", got)
	}
	release()
	says("that it is up to date", func(s *cdiv1.DataImportCronStatus) bool {
		return state(s, cdiv1.DataImportCronUpToDate) == "True UpToDate" && state(s, cdiv1.DataImportCronProgressing) == "False NoImport"
	})
	s := cron.Status
	if s.LastImportedPVC == nil || s.LastImportedPVC.Name != name || s.LastExecutionTimestamp == nil || s.LastImportTimestamp == nil ||
		s.SourceFormat == nil || *s.SourceFormat != cdiv1.DataImportCronSourceFormatPvc {
		t.Errorf("status %+v", s)
	}
	const prefix = "cdi.kubevirt.io/storage.import."
	if used := b.ReadClaim(name).Annotations[prefix+"lastUseTime"]; used == "" || cron.Annotations[prefix+"sourceDesiredDigest"] == "" {
		t.Errorf("the import was last used %q, the cron has %v", used, cron.Annotations)
	}
	asked := cron.Annotations[prefix+"lastCronTime"]
	next := cron.DeepCopy()
	next.Annotations[prefix+"nextCronTime"] = time.Now().Add(-time.Minute).Format(time.RFC3339)
	b.NoError(b.Kube.Patch(b.Context(), next, client.MergeFrom(cron)))
	says("that it has asked again", func(*cdiv1.DataImportCronStatus) bool { return cron.Annotations[prefix+"lastCronTime"] > asked })
	b.NoError(b.Kube.Delete(b.Context(), cron))
	b.Wait("its imports to go with it", fixture.Patience, func(ctx context.Context) (bool, string) {
		var all cdiv1.DataVolumeList
		err := b.Kube.List(ctx, &all, client.InNamespace(b.Namespace))
		return err == nil && len(all.Items) == 0, fmt.Sprint(len(all.Items))
	})
}

// TestCronProfile: a storage profile says how golden images of its class are kept: for one node at a time, how large at
// least, and as snapshots of which class.
func TestCronProfile(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	class := snapshotClass(b)
	group := schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}
	var profile cdiv1.StorageProfile
	b.NoError(b.Kube.Get(b.Context(), types.NamespacedName{Name: class}, &profile))
	special := &unstructured.Unstructured{}
	special.SetGroupVersionKind(group.WithKind("VolumeSnapshotClass"))
	b.NoError(b.Kube.Get(b.Context(), types.NamespacedName{Name: *profile.Status.SnapshotClass}, special))
	special = &unstructured.Unstructured{Object: map[string]any{
		"driver": special.Object["driver"], "deletionPolicy": special.Object["deletionPolicy"], "parameters": special.Object["parameters"],
	}}
	special.SetGroupVersionKind(group.WithKind("VolumeSnapshotClass"))
	special.SetName(b.Namespace)
	b.NoError(b.Kube.Create(b.Context(), special))
	t.Cleanup(func() { _ = b.Kube.Delete(context.Background(), special) })
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"cdi.kubevirt.io/useReadWriteOnceForDataImportCron":"true","cdi.kubevirt.io/snapshotClassForDataImportCron":%q,
		"cdi.kubevirt.io/minimumSupportedPvcSize":"80Mi"}},
		"spec":{"claimPropertySets":[{"accessModes":["ReadWriteMany"],"volumeMode":"Block"},{"accessModes":["ReadWriteOnce"],"volumeMode":"Block"}]}}`, special.GetName())
	b.NoError(b.Kube.Patch(b.Context(), &profile, client.RawPatch(types.MergePatchType, []byte(patch))))
	release := b.Web.Hold()
	b.CreateObject(&cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "images"},
		Spec: cdiv1.DataImportCronSpec{
			Schedule: "0 0 1 1 *", ManagedDataSource: "os",
			Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
				Source:  &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.Web.URL + "/disk.img"}},
				Storage: &cdiv1.StorageSpec{StorageClassName: &class, Resources: fixture.StorageRequest("40Mi")},
			}},
		},
	})
	b.Wait("the import's claim", fixture.Patience, func(ctx context.Context) (bool, string) {
		var claims corev1.PersistentVolumeClaimList
		err := b.Kube.List(ctx, &claims, client.InNamespace(b.Namespace))
		if err != nil || len(claims.Items) != 1 {
			return false, fmt.Sprint(len(claims.Items), err)
		}
		if modes := claims.Items[0].Spec.AccessModes; len(modes) != 1 || modes[0] != corev1.ReadWriteOnce {
			t.Errorf("the import's claim is %v", modes)
		}
		if size := claims.Items[0].Spec.Resources.Requests.Storage(); size.Value() != 80*fixture.MiB {
			t.Errorf("the import's claim asks for %s, its class makes none below 80Mi", size)
		}
		return true, ""
	})
	release()
	kept := &unstructured.Unstructured{}
	kept.SetGroupVersionKind(group.WithKind("VolumeSnapshot"))
	b.NoError(b.Kube.Get(b.Context(), types.NamespacedName{Namespace: b.Namespace, Name: b.WaitCronUpToDate("images", "")}, kept))
	if got, _, _ := unstructured.NestedString(kept.Object, "spec", "volumeSnapshotClassName"); got != special.GetName() {
		t.Errorf("the image is a snapshot of class %q", got)
	}
	if got := kept.GetAnnotations()["cdi.kubevirt.io/storage.import.sourceVolumeMode"]; got != "Block" {
		t.Errorf("the snapshot says that it is of mode %q", got)
	}
}

// TestConfigReachesWorkers: settings in the CDI resource apply to the next worker. It is not parallel, because all tests share the
// settings.
func TestConfigReachesWorkers(t *testing.T) {
	b := fixture.NewVolumes(t, framework.Restricted)
	ctx := context.Background()
	change := func(change func(*cdiv1.CDI)) {
		t.Helper()
		var cdi cdiv1.CDI
		b.NoError(b.Kube.Get(ctx, types.NamespacedName{Name: "cdi"}, &cdi))
		next := cdi.DeepCopy()
		change(next)
		b.NoError(b.Kube.Patch(ctx, next, client.MergeFrom(&cdi)))
	}
	var before cdiv1.CDI
	b.NoError(b.Kube.Get(ctx, types.NamespacedName{Name: "cdi"}, &before))
	t.Cleanup(func() {
		change(func(c *cdiv1.CDI) { c.Spec = *before.Spec.DeepCopy() })
	})
	node := b.ReadyNodes()[1]
	change(func(c *cdiv1.CDI) {
		if c.Spec.Config == nil {
			c.Spec.Config = &cdiv1.CDIConfigSpec{}
		}
		c.Spec.ImagePullPolicy = corev1.PullIfNotPresent
		c.Spec.Workloads.NodeSelector = map[string]string{corev1.LabelHostname: node}
		c.Spec.Config.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		c.Spec.Config.InsecureRegistries = []string{"registry.example:5000"}
		c.Spec.Config.ImportProxy = &cdiv1.ImportProxy{
			HTTPProxy: fixture.Ptr("http://proxy.example:3128"), HTTPSProxy: fixture.Ptr("http://proxy.example:3129"), NoProxy: fixture.Ptr(b.HostAddress()),
		}
		c.Spec.Config.PodResourceRequirements = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64M")}}
	})
	release := b.Web.Hold()
	atOnce := map[string]string{fixture.BindImmediately: ""} // the claim goes where its worker may run
	b.CreateVolume(fixture.Volume{Class: fixture.ClassWaits, Storage: "40Mi", Annotations: atOnce})
	b.CreateVolume(fixture.Volume{Name: "image", Class: fixture.ClassWaits, Storage: "40Mi", Annotations: atOnce, Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: fixture.Ptr("docker://registry.example:5000/disks/test:1")}}
	}})
	pod := b.WaitRunning("importer-disk")
	container := pod.Spec.Containers[0]
	if !slices.Contains(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: "pull"}) || container.ImagePullPolicy != corev1.PullIfNotPresent ||
		pod.Spec.NodeName != node || container.Resources.Requests.Memory().String() != "64M" {
		t.Errorf("the worker on %s has pull secrets %v, policy %s, requests %v", pod.Spec.NodeName, pod.Spec.ImagePullSecrets, container.ImagePullPolicy, container.Resources.Requests)
	}
	task := pod.Annotations["berth.dev/task"]
	for _, want := range []string{"http://proxy.example:3128", "http://proxy.example:3129", b.HostAddress()} {
		if !strings.Contains(task, want) {
			t.Errorf("the worker's task does not name %s: %s", want, task)
		}
	}
	var puller corev1.Pod
	b.Wait("the worker of the image", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := b.Kube.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: "importer-image"}, &puller)
		return err == nil, fmt.Sprint(err)
	})
	if task := puller.Annotations["berth.dev/task"]; !strings.Contains(task, "nsecure") {
		t.Errorf("the registry is not insecure in %s", task)
	}
	release()
	b.UntilPhase("disk", cdiv1.Succeeded) // not by the proxy, which is not there
	change(func(c *cdiv1.CDI) { c.Spec = *before.Spec.DeepCopy() })

	// how clones are made, and whether labelled claims are completed
	b.CreateVolume(fixture.Volume{Name: "golden", Class: fixture.ClassDiskImmediate, Size: "64Mi"})
	b.UntilPhase("golden", cdiv1.Succeeded)
	change(func(c *cdiv1.CDI) { c.Spec.CloneStrategyOverride = fixture.Ptr(cdiv1.CloneStrategyHostAssisted) })
	b.CreateVolume(fixture.CloneOf("copy", fixture.ClassDiskImmediate, "64Mi", false, b.SourceClaim()))
	b.UntilPhase("copy", cdiv1.Succeeded)
	b.ClonedBy("copy", "copy")
	change(func(c *cdiv1.CDI) {
		c.Spec = *before.Spec.DeepCopy()
		if c.Spec.Config == nil {
			c.Spec.Config = &cdiv1.CDIConfigSpec{}
		}
		c.Spec.Config.WebhookPvcRendering = cdiv1.WebhookPvcRenderingDisabled
	})
	labelled := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "labelled", Labels: map[string]string{"cdi.kubevirt.io/applyStorageProfile": "true"}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: fixture.Ptr(fixture.ClassImmediate), Resources: fixture.StorageRequest("40Mi")},
	}
	b.Wait("labelled claims to be left as they are", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := b.Kube.Create(ctx, labelled.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "at least 1 access mode is required"), fmt.Sprint(err)
	})
}
