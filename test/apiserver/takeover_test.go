//go:build apiserver

package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllers "sigs.k8s.io/controller-runtime/pkg/config"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/config/crd"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/datavolume"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/controller/installkeys"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/controller/populate"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/takeover"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// peer is an API server with what CDI v1.65 leaves on it. No controller runs there before the test starts ours.
type peer struct {
	*testing.T
	config *rest.Config
	kube   client.Client
	scheme *runtime.Scheme
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := startServer(ctx, t.TempDir())
	t.Cleanup(func() { cancel(); s.stop() })
	must(t, err)
	p := &peer{T: t, config: s.config, scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, cdiv1.AddToScheme, volumesnapshot.AddToScheme, accessv1.AddToScheme} {
		must(t, add(p.scheme))
	}
	p.kube, err = client.New(s.config, client.Options{Scheme: p.scheme})
	must(t, err)
	must(t, fs.WalkDir(crd.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(path, "cdi/") && !strings.Contains(path, "diskaccesses") && !strings.Contains(path, "volumebackupsources") {
			return err
		}
		text, err := fs.ReadFile(crd.Files, path)
		if err != nil {
			return err
		}
		return p.kube.Create(ctx, object(string(text)))
	}))
	for _, list := range []client.ObjectList{&cdiv1.DataVolumeList{}, &cdiv1.CDIList{}, &cdiv1.VolumeUploadSourceList{}, &cdiv1.StorageProfileList{}, &accessv1.DiskAccessList{}, &accessv1.VolumeBackupSourceList{}} {
		eventually(t, "the kinds to be served", func() (bool, error) { err := p.kube.List(ctx, list); return err == nil, err })
	}
	for _, text := range cdis {
		p.create(object(text))
	}
	return p
}

func (p *peer) create(obj client.Object) {
	p.Helper()
	must(p.T, p.kube.Create(p.Context(), obj))
}

// What CDI's operator makes, as far as it matters: the programs, what calls them, and the resource with its finalizer.
var cdis = []string{
	`{apiVersion: v1, kind: Namespace, metadata: {name: cdi}}`, `{apiVersion: v1, kind: Namespace, metadata: {name: team}}`,
	`{apiVersion: v1, kind: Namespace, metadata: {name: berth}}`,
	deployment("cdi-operator", 1), deployment("cdi-deployment", 2), deployment("cdi-apiserver", 1), deployment("cdi-uploadproxy", 1),
	`{apiVersion: cdi.kubevirt.io/v1beta1, kind: CDI, metadata: {name: cdi, finalizers: [operator.cdi.kubevirt.io]}, spec: {config: {featureGates: [HonorWaitForFirstConsumer]}}}`,
	`{apiVersion: batch/v1, kind: CronJob, metadata: {namespace: cdi, name: poller, labels: {cdi.kubevirt.io/dataImportCron: debian, cdi.kubevirt.io/dataImportCronNs: golden}}, spec: {schedule: "0 * * * *", suspend: false,
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}}}`,
	hook("Mutating", "cdi-api-datavolume-mutate", "cdi"), hook("Validating", "cdi-api-datavolume-validate", "cdi"),
	hook("Validating", "somebody-elses", "kube-public"),
	`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, provisioner: example.com/csi, volumeBindingMode: WaitForFirstConsumer}`,
	`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: soon}, provisioner: example.com/csi, volumeBindingMode: Immediate}`,
}

func deployment(name string, replicas int) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: cdi, name: %[1]s, labels: {cdi.kubevirt.io: ""}}, spec: {replicas: %[2]d, selector: {matchLabels: {name: %[1]s}},
  template: {metadata: {labels: {name: %[1]s}}, spec: {containers: [{name: a, image: a}]}}}}`, name, replicas)
}

func hook(kind, name, namespace string) string { // of a group that nobody here has, so that nobody waits for an answer
	return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: %sWebhookConfiguration, metadata: {name: %s}, webhooks: [{name: a.cdi.kubevirt.io,
  sideEffects: None, admissionReviewVersions: [v1], clientConfig: {service: {namespace: %s, name: cdi-api}}, rules: [{apiGroups: [none.example.com], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]}]}`,
		kind, name, namespace)
}

// theirs is a DataVolume as CDI has it.
type theirs struct {
	name   string
	phase  cdiv1.DataVolumePhase
	class  string
	direct bool              // CDI writes to the claim itself, and not by a populator
	notes  map[string]string // on the claim
	token  string            // of CDI's, that a clone is allowed
	block  bool
	source *cdiv1.DataVolumeSource // nil: a server's image, or an upload
}

// volume makes a DataVolume as CDI has it in a phase, with its claim: bound or not, filled by a populator or directly.
func (p *peer) volume(o theirs) *corev1.PersistentVolumeClaim {
	p.Helper()
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: o.name, Annotations: map[string]string{"cdi.kubevirt.io/storage.usePopulator": fmt.Sprint(!o.direct)}}}
	if o.token != "" {
		v.Annotations[token.Annotation] = o.token
	}
	v.Spec.Source = o.source
	switch {
	case o.source != nil:
	case o.phase == cdiv1.UploadReady:
		v.Spec.Source = &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
	default:
		v.Spec.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images.example.com/disk.qcow2"}}
	}
	mode := corev1.PersistentVolumeFilesystem
	if o.block {
		mode = corev1.PersistentVolumeBlock
	}
	gib := corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}
	v.Spec.Storage = &cdiv1.StorageSpec{StorageClassName: &o.class, Resources: gib, VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}}
	p.create(v)
	v.Status.Phase = o.phase
	must(p.T, p.kube.Status().Update(p.Context(), v))
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: o.name, Annotations: o.notes,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &o.class, Resources: gib, VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}}}
	if !o.direct {
		source, kind := p.order(v)
		p.create(source)
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(cdiv1.SchemeGroupVersion.Group), Kind: kind, Name: source.GetName()}
	}
	p.create(c)
	return c
}

// order returns what CDI makes for a populator to read. Of a clone it is in the namespace of its source.
func (p *peer) order(v *cdiv1.DataVolume) (source client.Object, kind string) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: team, Name: name + string(v.UID)}
	}
	clones := func(from corev1.TypedLocalObjectReference, namespace string) client.Object {
		s := &cdiv1.VolumeCloneSource{ObjectMeta: meta("volume-clone-source-"), Spec: cdiv1.VolumeCloneSourceSpec{Source: from}}
		s.Namespace = namespace
		return s
	}
	switch s := v.Spec.Source; {
	case s.Upload != nil:
		return &cdiv1.VolumeUploadSource{ObjectMeta: meta("volume-upload-source-")}, cdiv1.VolumeUploadSourceRef
	case s.PVC != nil:
		return clones(corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: s.PVC.Name}, s.PVC.Namespace), cdiv1.VolumeCloneSourceRef
	case s.Snapshot != nil:
		return clones(corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: s.Snapshot.Name}, s.Snapshot.Namespace),
			cdiv1.VolumeCloneSourceRef
	}
	return &cdiv1.VolumeImportSource{ObjectMeta: meta("volume-import-source-"), Spec: cdiv1.VolumeImportSourceSpec{
		Source: &cdiv1.ImportSourceType{HTTP: v.Spec.Source.HTTP}}}, cdiv1.VolumeImportSourceRef
}

// receives has CDI's server wait for an upload into the claim that is filled in the stead of another.
func (p *peer) receives(target *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	p.Helper()
	prime := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "prime-" + string(target.UID),
		Annotations:     map[string]string{"cdi.kubevirt.io/storage.upload.target": "", "cdi.kubevirt.io/storage.pod.phase": "Running"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(target, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))}},
		Spec: *target.Spec.DeepCopy()}
	prime.Spec.DataSource, prime.Spec.DataSourceRef = nil, nil
	p.create(prime)
	p.bind(prime)
	p.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "cdi-upload-" + prime.Name, UID: "theirs",
		Labels:          map[string]string{"app": "containerized-data-importer", "cdi.kubevirt.io": "cdi-upload-server"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(prime, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "cdi-uploadserver"}}, Volumes: []corev1.Volume{{Name: "cdi-data-vol",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: prime.Name}}}}}})
	return prime
}

// bind has a claim bound, as Kubernetes would.
func (p *peer) bind(c *corev1.PersistentVolumeClaim) {
	p.Helper()
	c.Spec.VolumeName = "pv-" + c.Name
	must(p.T, p.kube.Update(p.Context(), c))
	c.Status.Phase = corev1.ClaimBound
	must(p.T, p.kube.Status().Update(p.Context(), c))
}

// start runs Berth's controllers of volumes until it is told to stop.
func (p *peer) start() (stop func()) {
	p.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(p.config, ctrl.Options{Scheme: p.scheme, Metrics: metrics.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: controllers.Controller{SkipNameValidation: ptr.To(true)}})
	must(p.T, err)
	must(p.T, cacheindex.Register(ctx, mgr.GetFieldIndexer()))
	writer := cluster.New(mgr.GetClient(), mgr.GetEventRecorder("berth"), clock.RealClock{})
	uploads := &installkeys.Upload{Reader: mgr.GetAPIReader(), Writer: writer, Namespace: home, Clock: clock.RealClock{}}
	must(p.T, mgr.Add(uploads))
	review, err := kubernetes.NewForConfig(p.config)
	must(p.T, err)
	clones := installkeys.NewClone(mgr.GetAPIReader(), writer, home, review.AuthorizationV1().SubjectAccessReviews())
	records := diskaccess.New(mgr.GetClient(), mgr.GetAPIReader(), writer)
	engine, err := fill.Setup(mgr, writer, "worker", fill.Shared{Clones: clones, Uploads: uploads, Records: records}, prometheus.NewRegistry())
	must(p.T, err)
	must(p.T, datavolume.Setup(mgr, engine, writer))
	must(p.T, populate.Setup(mgr, engine, writer))
	keeper := &podend.Keeper{Reader: mgr.GetClient(), Live: mgr.GetAPIReader(), Cluster: writer, Finalizer: render.WorkerEnd, Before: records.ReleaseEnded}
	must(p.T, keeper.Setup(mgr, "worker-end"))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return sync.OnceFunc(func() { cancel(); <-ended })
}

// TestTakeover: what CDI has filled stays as it is and is Succeeded for Berth too, what waits continues, what is being filled is
// awaited, what Berth cannot continue with is refused before anything is changed; and CDI can be started again.
func TestTakeover(t *testing.T) {
	p := newPeer(t)
	ctx := t.Context()
	done := map[string]string{"cdi.kubevirt.io/storage.pod.phase": "Succeeded"}
	for name, notes := range map[string]map[string]string{"imported": done, "cloned": {"cdi.kubevirt.io/clonePhase": "Succeeded"}, "adopted": {"cdi.kubevirt.io/storage.populatedFor": "adopted"}} {
		p.bind(p.volume(theirs{name: name, phase: cdiv1.Succeeded, class: "soon", direct: name == "adopted", notes: notes}))
	}
	prime := p.receives(p.volume(theirs{name: "sent", phase: cdiv1.UploadReady, class: "soon"}))
	p.volume(theirs{name: "held", phase: cdiv1.PendingPopulation, class: "late"})
	p.volume(theirs{name: "old-held", phase: cdiv1.WaitForFirstConsumer, class: "late", direct: true})
	p.bind(p.volume(theirs{name: "moving", phase: cdiv1.ImportInProgress, class: "soon", direct: true, notes: map[string]string{"cdi.kubevirt.io/storage.pod.phase": "Running"}}))
	vddk := p.volume(theirs{name: "vddk", phase: cdiv1.Pending, class: "soon", direct: true})

	kubectl, err := kube.New(p.config, team)
	must(t, err)
	before := p.state()
	var out bytes.Buffer
	if err := takeover.Check(ctx, kubectl, &out); err != nil {
		t.Errorf("check: %v", err)
	}
	says(t, out.String(), map[string]string{"imported": "taken", "cloned": "recorded on its claim", "held": "taken", "moving": "finished", "cdi-api-datavolume-mutate": "deleted", "cdi-deployment": "stopped"})
	if strings.Contains(out.String(), "somebody-elses") {
		t.Error("a webhook that calls somebody else is to go")
	}

	p.phase(vddk.Name, cdiv1.Paused)
	if err := takeover.Run(ctx, kubectl, takeover.Options{Timeout: patience}, &out); err == nil || !strings.Contains(err.Error(), "vddk") {
		t.Errorf("what cannot be taken is not refused: %v", err)
	}
	p.phase(vddk.Name, cdiv1.Pending)
	err = takeover.Run(ctx, kubectl, takeover.Options{Timeout: 3 * time.Second}, &out)
	if err == nil || !strings.Contains(err.Error(), "not done after 3s") {
		t.Errorf("what CDI is filling is not awaited: %v", err)
	}
	if now := p.state(); now != before {
		t.Errorf("refused, and changed:\n%s\n%s", before, now)
	}

	finished := make(chan error, 1)
	go func() { finished <- takeover.Run(ctx, kubectl, takeover.Options{Timeout: patience}, &out) }()
	p.phase("moving", cdiv1.Succeeded) // CDI is done with it
	must(t, <-finished)
	stop := p.start()
	defer stop()
	for _, name := range []string{"imported", "cloned", "adopted", "moving"} {
		p.comesTo(name, cdiv1.Succeeded)
	}
	for _, name := range []string{"held", "old-held"} {
		p.comesTo(name, cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation)
	}
	var pods corev1.PodList
	eventually(t, "Berth's own server for the upload", func() (bool, error) {
		err := p.kube.List(ctx, &pods)
		return len(pods.Items) > 0 && pods.Items[0].Labels["berth.dev/claim-uid"] == string(prime.UID), fmt.Errorf("%d pods, %w", len(pods.Items), err)
	})
	if len(pods.Items) != 1 {
		t.Errorf("something is filled again: %v and %v", pods.Items[0].Name, pods.Items[1].Name)
	}
	var claims corev1.PersistentVolumeClaimList
	must(t, p.kube.List(ctx, &claims))
	if len(claims.Items) != 9 {
		t.Errorf("%d claims are left of 9", len(claims.Items))
	}
	if got := p.state(); !strings.Contains(got, "cdi-operator=0 cdi-uploadproxy=0 poller=0 suspended") || strings.Contains(got, "cdi-api-datavolume") || !strings.Contains(got, "somebody-elses") || strings.Contains(got, "operator.cdi") {
		t.Errorf("CDI is %s", got)
	}
	stop()
	if err := takeover.Back(ctx, kubectl, takeover.Options{Timeout: patience}, &out); err == nil || !strings.Contains(err.Error(), "sent") {
		t.Errorf("CDI is to go on with what Berth began: %v", err)
	}
	p.phase("sent", cdiv1.Failed)
	must(t, takeover.Back(ctx, kubectl, takeover.Options{Timeout: patience}, &out))
	if got := p.state(); !strings.Contains(got, "cdi-deployment=2 cdi-operator=1") || strings.Contains(got, "suspended") {
		t.Errorf("CDI is %s", got)
	}
}

// says checks the lines of a check.
func says(t *testing.T, table string, want map[string]string) {
	t.Helper()
	for name, words := range want {
		line := ""
		for l := range strings.Lines(table) {
			if strings.Contains(l, "/"+name+" ") {
				line = l
			}
		}
		if !strings.Contains(line, words) {
			t.Errorf("%s: %q lacks %q", name, line, words)
		}
	}
}

func (p *peer) get(name string) *cdiv1.DataVolume {
	p.Helper()
	var v cdiv1.DataVolume
	must(p.T, p.kube.Get(p.Context(), client.ObjectKey{Namespace: team, Name: name}, &v))
	return &v
}

func (p *peer) phase(name string, phase cdiv1.DataVolumePhase) {
	p.Helper()
	v := p.get(name)
	v.Status.Phase = phase
	must(p.T, p.kube.Status().Update(p.Context(), v))
}

// state is CDI as it stands: its programs, what calls them, and the finalizers of its resource.
func (p *peer) state() string {
	p.Helper()
	var out []string
	for _, kind := range []string{"apps/v1 Deployment", "batch/v1 CronJob", "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
		"cdi.kubevirt.io/v1beta1 CDI"} {
		version, name, _ := strings.Cut(kind, " ")
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(version)
		list.SetKind(name + "List")
		must(p.T, p.kube.List(p.Context(), list))
		for _, o := range list.Items {
			replicas, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
			text := fmt.Sprintf("%s=%d%s", o.GetName(), replicas, strings.Join(o.GetFinalizers(), ""))
			if stopped, found, _ := unstructured.NestedBool(o.Object, "spec", "suspend"); found && stopped {
				text += " suspended"
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, " ")
}
