//go:build e2e

// Package cluster tests the cluster that the other tests run on: what a user of Kubernetes takes for granted, and the problem
// that this project solves, shown on the real thing.
package cluster

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func TestMain(m *testing.M) { framework.Main(m) }

// forever is a script that ends at once when its pod is deleted.
const forever = "trap exit TERM; while :; do sleep 1; done"

// nodes are the names of at least that many Ready nodes.
func nodes(e *framework.Env, atLeast int) []string {
	e.T.Helper()
	names := e.ReadyNodes()
	if len(names) < atLeast {
		e.T.Fatalf("the test needs %d Ready nodes; there are %v", atLeast, names)
	}
	return names
}

func TestPodRunsOnEachNode(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	for _, node := range nodes(e, 3) {
		always := func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways }
		out := e.Run(framework.Pod{Name: "hello-" + node, Node: node, Script: "echo here", Change: always})
		if strings.TrimSpace(out) != "here" {
			t.Errorf("pod on %s printed %q, want %q", node, out, "here")
		}
	}
}

func TestPodsReachEachOtherAcrossNodes(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	names := nodes(e, 3)
	e.Start(framework.Pod{Name: "server", Node: names[0], Script: "mkdir /www; echo across > /www/index.html; httpd -f -p 8080 -h /www"})
	ip := e.WaitRunning("server").Status.PodIP
	for _, node := range names {
		out := e.Run(framework.Pod{Name: "client-" + node, Node: node, Script: "until wget -qO- http://" + ip + ":8080/; do sleep 0.2; done"})
		if strings.TrimSpace(out) != "across" {
			t.Errorf("pod on %s got %q from the pod on %s, want %q", node, out, names[0], "across")
		}
	}
}

func TestServiceIsFoundByNameAndReachesItsPod(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	names := nodes(e, 2)
	e.Start(framework.Pod{Name: "server", Node: names[0], Labels: map[string]string{"app": "server"},
		Script: "mkdir /www; echo served > /www/index.html; httpd -f -p 8080 -h /www"})
	_, err := e.Client.CoreV1().Services(e.Namespace).Create(e.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "server"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create service: %v", err)
	}
	e.WaitRunning("server")
	// From the pod's own node and from another: the way back differs.
	for _, node := range names[:2] {
		out := e.Run(framework.Pod{Name: "client-" + node, Node: node,
			Script: "until wget -qO- http://web." + e.Namespace + ".svc.cluster.local/; do sleep 0.2; done"})
		if strings.TrimSpace(out) != "served" {
			t.Errorf("pod on %s got %q from the service, want %q", node, out, "served")
		}
	}
}

func TestUnknownNameDoesNotExist(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	out := e.Run(framework.Pod{Name: "lookup", Script: "nslookup nowhere.example.com 2>&1 || true"})
	if !strings.Contains(out, "NXDOMAIN") {
		t.Errorf("looking up a name outside the cluster: got %q, want NXDOMAIN at once", out)
	}
}

func TestPodReachesServerOnThisMachine(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	url := e.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("from the machine")) }))
	out := e.Run(framework.Pod{Name: "client", Script: "wget -qO- " + url + "/"})
	if out != "from the machine" {
		t.Errorf("pod got %q from %s", out, url)
	}
}

// TestLocalClaimFollowsItsFirstPod is the problem the project solves: the first pod that uses a claim of a local class decides where
// the data is, and from then on a pod that must run elsewhere cannot run at all.
func TestLocalClaimFollowsItsFirstPod(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	names := nodes(e, 2)
	e.Create(framework.Claim{Name: "data", Class: "local"})
	e.StaysPending("data", 3*time.Second)
	e.WaitEvent("data", time.Minute, func(reason, _ string) bool { return reason == "WaitForFirstConsumer" })

	e.Start(framework.Pod{Name: "first", Node: names[1], Claims: []string{"data"}, Script: "echo kept > /data/file; " + forever})
	e.WaitRunning("first")
	if got := framework.VolumeNode(e.WaitBound("data")); got != names[1] {
		t.Fatalf("the volume is on node %q, want the first pod's node %q", got, names[1])
	}

	e.Start(framework.Pod{Name: "second", Node: names[0], Claims: []string{"data"}, Script: forever})
	message := e.WaitEvent("second", time.Minute, func(reason, _ string) bool { return reason == "FailedScheduling" })
	if !strings.Contains(message, "volume node affinity conflict") && !strings.Contains(message, "didn't match PersistentVolume's node affinity") {
		t.Errorf("the second pod cannot be scheduled because of %q, want the volume's node affinity", message)
	}
	e.Delete("first")
	out := e.Run(framework.Pod{Name: "third", Claims: []string{"data"}, Script: "cat /data/file"})
	if strings.TrimSpace(out) != "kept" {
		t.Errorf("the third pod reads %q, want what the first wrote", out)
	}
}

func TestImmediateClaimNeedsNoPod(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	e.Create(framework.Claim{Name: "data", Class: "immediate"})
	node := framework.VolumeNode(e.WaitBound("data"))
	if node == "" {
		t.Fatal("the volume is on no node")
	}
	pod := e.Start(framework.Pod{Name: "user", Claims: []string{"data"}, Script: forever})
	if got := e.WaitRunning(pod.Name).Spec.NodeName; got != node {
		t.Errorf("the pod runs on %s, want the volume's node %s", got, node)
	}
}

func TestDeletedLocalClaimLeavesNothing(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	e.Create(framework.Claim{Name: "data", Class: "immediate"})
	volume := e.WaitBound("data")
	deleteClaim(e, "data")
	e.Wait("volume "+volume.Name+" to be gone", time.Minute, func(ctx context.Context) (bool, string) {
		pv, err := e.Client.CoreV1().PersistentVolumes().Get(ctx, volume.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, ""
		}
		if err != nil {
			return false, err.Error()
		}
		return false, string(pv.Status.Phase)
	})
}

// TestStaticBlockClaim writes to a device as an ordinary user, finds it again, and finds the disk clean after its claim is deleted.
func TestStaticBlockClaim(t *testing.T) {
	t.Parallel()
	e := framework.New(t, framework.Restricted)
	const user = 107
	e.Create(framework.Claim{Name: "disk", Class: "local-static", Block: true})
	e.StaysPending("disk", time.Second)
	out := e.Run(framework.Pod{Name: "writer", User: user, Claims: []string{"disk"},
		Script: "test -b /dev/disk; echo pattern | dd of=/dev/disk bs=512 seek=2048 conv=notrunc,sync 2>/dev/null; id -u"})
	if strings.TrimSpace(out) != "107" {
		t.Errorf("the writer ran as %q, want 107", out)
	}
	volume := e.WaitBound("disk")
	out = e.Run(framework.Pod{Name: "reader", User: user, Claims: []string{"disk"}, Script: "dd if=/dev/disk bs=512 skip=2048 count=1 2>/dev/null | tr -d '\\0'"})
	if strings.TrimSpace(out) != "pattern" {
		t.Errorf("the reader found %q, want what the writer wrote", out)
	}
	recycled(e, "disk", volume)
}

func TestStaticFilesystemClaim(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	e.Create(framework.Claim{Name: "files", Class: "local-static"})
	const sum = "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7" // sha256 of "data"
	e.Run(framework.Pod{Name: "writer", Claims: []string{"files"}, Script: "printf data > /files/disk.img; df -k /files"})
	if got := e.Sum("files", "disk.img"); got != sum {
		t.Errorf("sha256 of what was written is %s, want %s", got, sum)
	}
	recycled(e, "files", e.WaitBound("files"))
}

// recycled deletes the claim and waits until its disk is offered again, as a new volume.
func recycled(e *framework.Env, claim string, volume *corev1.PersistentVolume) {
	e.T.Helper()
	deleteClaim(e, claim)
	// The keeper of the disks of a node that was cut off a moment ago first has to notice that its connection is dead, and
	// then waits a while before it tries another.
	e.Wait("disk "+volume.Name+" to be offered again", 5*time.Minute, func(ctx context.Context) (bool, string) {
		pv, err := e.Client.CoreV1().PersistentVolumes().Get(ctx, volume.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return pv.UID != volume.UID, string(pv.Status.Phase)
	})
}

func deleteClaim(e *framework.Env, name string) {
	e.T.Helper()
	if err := e.Client.CoreV1().PersistentVolumeClaims(e.Namespace).Delete(e.Context(), name, metav1.DeleteOptions{}); err != nil {
		e.T.Fatalf("delete claim %s: %v", name, err)
	}
}

func TestRestrictedNamespaceRefusesPrivilegedPod(t *testing.T) {
	t.Parallel()
	e := framework.New(t, framework.Restricted)
	_, err := e.Client.CoreV1().Pods(e.Namespace).Create(e.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "root"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "busybox"}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("creating a pod that may run as root: got %v, want Forbidden", err)
	}
	e.Run(framework.Pod{Name: "user", User: 1000, Script: "id"})
}

// TestGatesAreTheDefaults: the API server has the feature gates of a stock one, which drops a claim's source in another namespace. Berth moves the
// namespace of its own sources away before that (internal/admission); this source is of another kind.
func TestGatesAreTheDefaults(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	other := "elsewhere"
	if made := sourced(e, "abroad", &other); made.Spec.DataSourceRef != nil {
		t.Errorf("the source is kept: %+v; feature gate CrossNamespaceVolumeDataSource is on", made.Spec.DataSourceRef)
	}
}

// TestProvisionerLeavesSourcesAlone: a provisioner leaves a claim with a source to the populator of that source, even if a pod wants it.
func TestProvisionerLeavesSourcesAlone(t *testing.T) {
	t.Parallel()
	e := framework.New(t)
	if made := sourced(e, "clone", nil); made.Spec.DataSourceRef == nil {
		t.Fatal("the source is dropped")
	}
	e.Start(framework.Pod{Name: "user", Claims: []string{"clone"}, Script: forever})
	e.StaysPending("clone", 3*time.Second)
}

// sourced creates a claim whose source is of a kind that no populator here knows.
func sourced(e *framework.Env, name string, namespace *string) *corev1.PersistentVolumeClaim {
	e.T.Helper()
	class, group := "local", "example.com"
	made, err := e.Client.CoreV1().PersistentVolumeClaims(e.Namespace).Create(e.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: &group, Kind: "Source", Name: "s", Namespace: namespace},
			Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *quantity(1 << 30)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.T.Fatalf("create claim %s: %v", name, err)
	}
	return made
}
