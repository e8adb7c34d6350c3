//go:build e2e

package e2e

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

	"github.com/berth-vm/berth/test/e2e/framework"
)

// tells waits until events of all these reasons were told about an object.
func (b *bed) tells(object string, reasons ...string) {
	b.T.Helper()
	for _, want := range reasons {
		b.WaitEvent(object, patience, func(reason, _ string) bool { return reason == want })
	}
}

// TestVolumeTells: the events that clients know, each of a volume that it happens to.
func TestVolumeTells(t *testing.T) {
	t.Parallel()
	d := newDoor(newBed(t))
	release := d.web.hold()
	d.volume(volume{name: "golden", class: classDiskImmediate, size: "64Mi"})
	d.tells("golden", "ImportScheduled", "ImportInProgress")
	release()
	d.tells("golden", "ImportSucceeded")
	d.untilPhase("golden", cdiv1.Succeeded)

	d.volume(cloned("driven", classDiskImmediate, "64Mi", false, d.fromClaim()))
	d.tells("driven", "CSICloneInProgress", "CloneSucceeded")
	d.consume("golden", "")
	d.WaitRunning("consumer-golden")
	d.volume(cloned("snapped", classDiskImmediate, "64Mi", false, d.fromClaim()))
	d.tells("snapped", "SnapshotForSmartCloneInProgress", "CloneSucceeded")
	d.Delete("consumer-golden")
	snapshot(d.Env, "kept", "golden") // into a device it is restored by way of another claim, which takes a moment
	kept := cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: d.Namespace, Name: "kept"}}
	d.volume(cloned("turned", classDiskImmediate, "64Mi", true, kept))
	d.tells("turned", "CloneFromSnapshotSourceInProgress", "CloneSucceeded")
	d.volume(volume{name: "plain", class: classImmediate, storage: "40Mi"})
	d.untilPhase("plain", cdiv1.Succeeded)
	fromPlain := cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: d.Namespace, Name: "plain"}}
	d.consume("plain", "")
	d.WaitRunning("consumer-plain")
	d.volume(cloned("busy", classImmediate, "64Mi", false, fromPlain))
	d.tells("busy", "CloneSourceInUse")
	d.Delete("consumer-plain")
	d.tells("busy", "CloneScheduled", "CloneSucceeded")
	d.volume(volume{name: "orphan", class: classImmediate, size: "64Mi", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: d.Namespace, Name: "nothing"}}
	}})
	d.tells("orphan", "CloneWithoutSource")
	d.volume(cloned("smaller", classImmediate, "8Mi", false, fromPlain))
	d.tells("smaller", "ErrIncompatiblePVC", "CloneValidationFailed")
	d.WaitBound("smaller")
	d.volume(volume{name: "tight", class: classImmediate, storage: "8Mi"})
	d.tells("tight", "ImportFailed", "Error")

	d.ordered("theirs", classImmediate, nil)
	d.WaitBound("theirs")
	d.volume(volume{name: "theirs", class: classImmediate, size: "64Mi", annotations: map[string]string{"cdi.kubevirt.io/storage.prePopulated": "another"}})
	d.tells("theirs", "ErrResourceExists")
	d.ordered("less", classImmediate, nil)
	d.WaitBound("less")
	d.volume(volume{name: "less", class: classImmediate, size: "96Mi", annotations: map[string]string{"cdi.kubevirt.io/allowClaimAdoption": "true"}})
	d.tells("less", "ErrIncompatiblePVC")

	d.importSource("image", d.web.url+"/disk.img")
	d.volume(volume{name: "outside", class: classDiskImmediate, storage: "64Mi", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = nil
		dv.Spec.Storage.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "image"}
	}})
	d.tells("outside", "ExternalPopulationSucceeded")
	if got := d.claim("outside").Annotations["cdi.kubevirt.io/externalPopulation"]; got != "true" {
		t.Errorf("externalPopulation is %q", got)
	}

	d.await("sent", "40Mi")
	d.tells("sent", "UploadScheduled", "UploadReady")
	if got := d.claim("sent").Annotations["cdi.kubevirt.io/storage.uploadPodName"]; got != "cdi-upload-sent" {
		t.Errorf("uploadPodName is %q", got)
	}
	d.answers("200", "", d.token("sent"), "/v1beta1/upload", "-T", d.file("disk.img", image(8)))
	d.tells("sent", "UploadSucceeded")
	d.untilPhase("sent", cdiv1.Succeeded)

	d.consume("sent", "")
	d.WaitRunning("consumer-sent")
	d.must(d.kube.Delete(d.Context(), d.claim("sent")))
	d.tells("sent", "ErrResourceMarkedForDeletion")
	d.Delete("consumer-sent")
}

// TestCloneTells: the events of clones that cannot be: one whose disk does not fit, and one of a snapshot that no class can restore.
func TestCloneTells(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Create(framework.Claim{Name: "golden", Class: classImmediate, Size: "64Mi"})
	b.Run(framework.Pod{Name: "make", User: guest, Claims: []string{"golden"}, Script: "truncate -s 100M /golden/disk.img"})
	b.volume(cloned("tight", classDiskImmediate, "64Mi", true, b.fromClaim())) // nobody measured that disk, so only the copy shows that the device is too small
	b.tells("tight", "CloneFailed", "Error")
	b.untilPhase("tight", cdiv1.Failed)

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
	b.must(b.kube.Create(b.Context(), content))
	b.must(b.kube.Create(b.Context(), kept))
	t.Cleanup(func() {
		for _, u := range []*unstructured.Unstructured{kept, content} {
			_ = b.kube.Patch(context.Background(), u, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			if err := client.IgnoreNotFound(b.kube.Delete(context.Background(), u)); err != nil {
				t.Error(err)
			}
		}
	})
	b.volume(cloned("restored", classDiskImmediate, "64Mi", false, cdiv1.DataVolumeSource{
		Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: b.Namespace, Name: "kept"},
	}))
	b.Wait("the clone to be refused", patience, func(ctx context.Context) (bool, string) {
		// There is no such driver, so nobody else says that the snapshot is ready.
		status := `{"status":{"readyToUse":true,"restoreSize":"64Mi","boundVolumeSnapshotContentName":"` + b.Namespace + `"}}`
		err := b.kube.Status().Patch(ctx, kept, client.RawPatch(types.MergePatchType, []byte(status)))
		dv := b.get("restored")
		return strings.Contains(message(dv), "no storage class of nobody.example can restore"), fmt.Sprint(message(dv), err)
	})
	b.tells("restored", "CloneValidationFailed")
}

// TestPopulateAnnotations: what a claim that populates itself says in annotations while it does, and the events.
func TestPopulateAnnotations(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	release := b.web.hold()
	b.importSource("image", b.web.url+"/disk.img")
	b.populate(populated{name: "disk", class: classDiskImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	// what the worker's own claim shows follows one write later
	c := b.untilClaim("disk", "to be filled", func(c *corev1.PersistentVolumeClaim) bool {
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
	b.untilPopulated("disk")
	b.tells("disk", "RebindInProgress")
}

// TestWorkerOptions: what a claim's annotations and a volume's spec ask of the worker is what its pod has.
func TestWorkerOptions(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	b.must(b.kube.Create(b.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "mover"}}))
	b.must(b.kube.Create(b.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "login"}, StringData: map[string]string{"accessKeyId": "ada", "secretKey": "secret"},
	}))
	release := b.web.hold()
	defer release()
	url := b.Serve(login("ada", "secret", b.web))
	b.ordered("mine", classDiskImmediate, map[string]string{
		storagePrefix + "import.endpoint": url + "/disk.img", storagePrefix + "import.secretName": "login",
		storagePrefix + "pod.serviceAccountName": "mover", storagePrefix + "pod.priorityclassname": "system-node-critical",
		storagePrefix + "preallocation.requested": "true",
	})
	b.volume(volume{name: "disk", class: classImmediate, storage: "40Mi", change: func(dv *cdiv1.DataVolume) { dv.Spec.ServiceAccountName = "mover" }})
	dv := b.untilPhase("disk", cdiv1.ImportInProgress)
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
	c := b.untilClaim("mine", "to be full", func(c *corev1.PersistentVolumeClaim) bool { return c.Annotations[podPhase] == "Succeeded" })
	if got := c.Annotations[storagePrefix+"preallocation"]; got != "true" {
		t.Errorf("preallocation is %q", got)
	}
	b.untilPhase("disk", cdiv1.Succeeded)
}

// TestCronSays: what a DataImportCron shows of itself, whom its imports run as, and that they go with it if they are not to stay.
func TestCronSays(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	b.must(b.kube.Create(b.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "mover"}}))
	class, retain, collect := classImmediate, cdiv1.DataImportCronRetainNone, cdiv1.DataImportCronGarbageCollectOutdated
	release := b.web.hold()
	defer release()
	cron := &cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "images"},
		Spec: cdiv1.DataImportCronSpec{
			Schedule: "0 0 1 1 *", ManagedDataSource: "os", RetentionPolicy: &retain, GarbageCollect: &collect, ServiceAccountName: ptr("mover"),
			Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
				Source:  &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.web.url + "/disk.img"}},
				Storage: &cdiv1.StorageSpec{StorageClassName: &class, Resources: request("40Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
			}},
		},
	}
	b.create(cron)
	says := func(what string, is func(s *cdiv1.DataImportCronStatus) bool) {
		t.Helper()
		b.Wait("the cron to say "+what, patience, func(ctx context.Context) (bool, string) {
			err := b.kube.Get(ctx, client.ObjectKeyFromObject(cron), cron)
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
	if got := b.get(name).Labels["cdi.kubevirt.io/dataImportCron"]; got != "images" {
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
	if used := b.claim(name).Annotations[prefix+"lastUseTime"]; used == "" || cron.Annotations[prefix+"sourceDesiredDigest"] == "" {
		t.Errorf("the import was last used %q, the cron has %v", used, cron.Annotations)
	}
	asked := cron.Annotations[prefix+"lastCronTime"]
	next := cron.DeepCopy()
	next.Annotations[prefix+"nextCronTime"] = time.Now().Add(-time.Minute).Format(time.RFC3339)
	b.must(b.kube.Patch(b.Context(), next, client.MergeFrom(cron)))
	says("that it has asked again", func(*cdiv1.DataImportCronStatus) bool { return cron.Annotations[prefix+"lastCronTime"] > asked })
	b.must(b.kube.Delete(b.Context(), cron))
	b.Wait("its imports to go with it", patience, func(ctx context.Context) (bool, string) {
		var all cdiv1.DataVolumeList
		err := b.kube.List(ctx, &all, client.InNamespace(b.Namespace))
		return err == nil && len(all.Items) == 0, fmt.Sprint(len(all.Items))
	})
}

// TestCronProfile: a storage profile says how golden images of its class are kept: for one node at a time, how large at
// least, and as snapshots of which class.
func TestCronProfile(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	class := b.snapshotClass()
	group := schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}
	var profile cdiv1.StorageProfile
	b.must(b.kube.Get(b.Context(), types.NamespacedName{Name: class}, &profile))
	special := &unstructured.Unstructured{}
	special.SetGroupVersionKind(group.WithKind("VolumeSnapshotClass"))
	b.must(b.kube.Get(b.Context(), types.NamespacedName{Name: *profile.Status.SnapshotClass}, special))
	special = &unstructured.Unstructured{Object: map[string]any{
		"driver": special.Object["driver"], "deletionPolicy": special.Object["deletionPolicy"], "parameters": special.Object["parameters"],
	}}
	special.SetGroupVersionKind(group.WithKind("VolumeSnapshotClass"))
	special.SetName(b.Namespace)
	b.must(b.kube.Create(b.Context(), special))
	t.Cleanup(func() { _ = b.kube.Delete(context.Background(), special) })
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"cdi.kubevirt.io/useReadWriteOnceForDataImportCron":"true","cdi.kubevirt.io/snapshotClassForDataImportCron":%q,
		"cdi.kubevirt.io/minimumSupportedPvcSize":"80Mi"}},
		"spec":{"claimPropertySets":[{"accessModes":["ReadWriteMany"],"volumeMode":"Block"},{"accessModes":["ReadWriteOnce"],"volumeMode":"Block"}]}}`, special.GetName())
	b.must(b.kube.Patch(b.Context(), &profile, client.RawPatch(types.MergePatchType, []byte(patch))))
	release := b.web.hold()
	b.create(&cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "images"},
		Spec: cdiv1.DataImportCronSpec{
			Schedule: "0 0 1 1 *", ManagedDataSource: "os",
			Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
				Source:  &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.web.url + "/disk.img"}},
				Storage: &cdiv1.StorageSpec{StorageClassName: &class, Resources: request("40Mi")},
			}},
		},
	})
	b.Wait("the import's claim", patience, func(ctx context.Context) (bool, string) {
		var claims corev1.PersistentVolumeClaimList
		err := b.kube.List(ctx, &claims, client.InNamespace(b.Namespace))
		if err != nil || len(claims.Items) != 1 {
			return false, fmt.Sprint(len(claims.Items), err)
		}
		if modes := claims.Items[0].Spec.AccessModes; len(modes) != 1 || modes[0] != corev1.ReadWriteOnce {
			t.Errorf("the import's claim is %v", modes)
		}
		if size := claims.Items[0].Spec.Resources.Requests.Storage(); size.Value() != 80*mib {
			t.Errorf("the import's claim asks for %s, its class makes none below 80Mi", size)
		}
		return true, ""
	})
	release()
	kept := &unstructured.Unstructured{}
	kept.SetGroupVersionKind(group.WithKind("VolumeSnapshot"))
	b.must(b.kube.Get(b.Context(), types.NamespacedName{Namespace: b.Namespace, Name: b.upToDate("images", "")}, kept))
	if got, _, _ := unstructured.NestedString(kept.Object, "spec", "volumeSnapshotClassName"); got != special.GetName() {
		t.Errorf("the image is a snapshot of class %q", got)
	}
	if got := kept.GetAnnotations()["cdi.kubevirt.io/storage.import.sourceVolumeMode"]; got != "Block" {
		t.Errorf("the snapshot says that it is of mode %q", got)
	}
}

// TestConfigReachesWorkers: what an administrator writes into the CDI resource holds for the next worker. It is not parallel: the
// settings are everybody's.
func TestConfigReachesWorkers(t *testing.T) {
	b := newBed(t, framework.Restricted)
	ctx := context.Background()
	change := func(change func(*cdiv1.CDI)) {
		t.Helper()
		var cdi cdiv1.CDI
		b.must(b.kube.Get(ctx, types.NamespacedName{Name: "cdi"}, &cdi))
		next := cdi.DeepCopy()
		change(next)
		b.must(b.kube.Patch(ctx, next, client.MergeFrom(&cdi)))
	}
	var before cdiv1.CDI
	b.must(b.kube.Get(ctx, types.NamespacedName{Name: "cdi"}, &before))
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
			HTTPProxy: ptr("http://proxy.example:3128"), HTTPSProxy: ptr("http://proxy.example:3129"), NoProxy: ptr(b.HostAddress()),
		}
		c.Spec.Config.PodResourceRequirements = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64M")}}
	})
	release := b.web.hold()
	atOnce := map[string]string{immediately: ""} // the claim goes where its worker may run
	b.volume(volume{class: classWaits, storage: "40Mi", annotations: atOnce})
	b.volume(volume{name: "image", class: classWaits, storage: "40Mi", annotations: atOnce, change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr("docker://registry.example:5000/disks/test:1")}}
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
	b.Wait("the worker of the image", patience, func(ctx context.Context) (bool, string) {
		err := b.kube.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: "importer-image"}, &puller)
		return err == nil, fmt.Sprint(err)
	})
	if task := puller.Annotations["berth.dev/task"]; !strings.Contains(task, "nsecure") {
		t.Errorf("the registry is not insecure in %s", task)
	}
	release()
	b.untilPhase("disk", cdiv1.Succeeded) // not by the proxy, which is not there
	change(func(c *cdiv1.CDI) { c.Spec = *before.Spec.DeepCopy() })

	// how clones are made, and whether labelled claims are completed
	b.volume(volume{name: "golden", class: classDiskImmediate, size: "64Mi"})
	b.untilPhase("golden", cdiv1.Succeeded)
	change(func(c *cdiv1.CDI) { c.Spec.CloneStrategyOverride = ptr(cdiv1.CloneStrategyHostAssisted) })
	b.volume(cloned("copy", classDiskImmediate, "64Mi", false, b.fromClaim()))
	b.untilPhase("copy", cdiv1.Succeeded)
	b.clonedBy("copy", "copy")
	change(func(c *cdiv1.CDI) {
		c.Spec = *before.Spec.DeepCopy()
		if c.Spec.Config == nil {
			c.Spec.Config = &cdiv1.CDIConfigSpec{}
		}
		c.Spec.Config.WebhookPvcRendering = cdiv1.WebhookPvcRenderingDisabled
	})
	labelled := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "labelled", Labels: map[string]string{"cdi.kubevirt.io/applyStorageProfile": "true"}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr(classImmediate), Resources: request("40Mi")},
	}
	b.Wait("labelled claims to be left as they are", patience, func(ctx context.Context) (bool, string) {
		err := b.kube.Create(ctx, labelled.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "at least 1 access mode is required"), fmt.Sprint(err)
	})
}
