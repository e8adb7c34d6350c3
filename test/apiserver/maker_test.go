//go:build apiserver

package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/containervolume"
	"github.com/berth-vm/berth/internal/controller/installkeys"
	"github.com/berth-vm/berth/internal/render"
)

// workshop is the controller of containers that make volumes on the real API server; the test is the kubelet and the containers, which
// serve with the certificates that the controller made for them.
type workshop struct {
	t      *testing.T
	kube   client.Client
	scheme *runtime.Scheme
	cancel context.CancelFunc
	ended  chan error
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	w := &workshop{t: t, scheme: runtime.NewScheme()}
	if err := errors.Join(clientgo.AddToScheme(w.scheme), kubevirt.AddToScheme(w.scheme), accessv1.AddToScheme(w.scheme)); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.kube, err = client.New(baseCfg, client.Options{Scheme: w.scheme}); err != nil {
		t.Fatal(err)
	}
	w.start()
	t.Cleanup(func() { w.crash() })
	return w
}

// start starts the controller, again after a crash.
func (w *workshop) start() {
	w.t.Helper()
	mgr, err := ctrl.NewManager(rest.CopyConfig(baseCfg), ctrl.Options{Scheme: w.scheme, Metrics: metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0", Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}})
	if err != nil {
		w.t.Fatal(err)
	}
	writer := cluster.New(mgr.GetClient(), mgr.GetEventRecorder("berth"), clock.RealClock{})
	if err := containervolume.Setup(mgr, writer, installkeys.NewMaker(mgr.GetAPIReader(), writer, home, clock.RealClock{}), nil); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.ended = cancel, make(chan error, 1)
	ended := w.ended
	go func() {
		err := mgr.Start(ctx)
		if err != nil {
			w.t.Errorf("the controller ended: %v", err)
		}
		ended <- err
	}()
}

// crash ends the controller wherever it is; what it knew is gone.
func (w *workshop) crash() { w.cancel(); <-w.ended }

// container is one that serves what its handler says.
type container struct {
	vm      *kubevirt.VirtualMachine
	mu      sync.Mutex
	asked   []string
	handler http.HandlerFunc
}

func (c *container) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	c.asked = append(c.asked, r.Method+" "+string(text))
	c.mu.Unlock()
	c.handler(out, r)
}

func (c *container) heard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

func answers(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// run makes a machine with a container and runs the container: it is up when its pod has been made.
func (w *workshop) run(name, more string, handler http.HandlerFunc) *container {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	text := vmNamed(name, "running: false", fmt.Sprintf("%s, volumes: [{name: root, container: {image: maker, size: 1Gi, ports: [{name: volume, containerPort: %d}]}%s}]",
		bare, l.Addr().(*net.TCPAddr).Port, more))
	if err := users["gina"].Create(w.t.Context(), object(text)); err != nil {
		w.t.Fatal(err)
	}
	c := &container{vm: &kubevirt.VirtualMachine{}, handler: handler}
	if err := w.kube.Get(w.t.Context(), types.NamespacedName{Namespace: team, Name: name}, c.vm); err != nil {
		w.t.Fatal(err)
	}
	pod := w.pod(c)
	var secret corev1.Secret
	if err := w.kube.Get(w.t.Context(), client.ObjectKeyFromObject(pod), &secret); err != nil {
		w.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		w.t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(secret.Data["ca.crt"])
	s := &http.Server{Handler: c, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert}}
	go func() { _ = s.ServeTLS(l, "", "") }()
	w.t.Cleanup(func() { _ = s.Close() })
	w.up(pod)
	return c
}

func (w *workshop) key(c *container) types.NamespacedName {
	return types.NamespacedName{Namespace: team, Name: render.MakerName(c.vm.Name, c.vm.UID, "root")}
}

// pod waits for the container's pod.
func (w *workshop) pod(c *container) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	eventually(w.t, "the pod is made", func() (bool, error) {
		err := w.kube.Get(w.t.Context(), w.key(c), pod)
		return err == nil, client.IgnoreNotFound(err)
	})
	return pod
}

// up is the kubelet: the container runs.
func (w *workshop) up(pod *corev1.Pod) {
	w.t.Helper()
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, "127.0.0.1", []corev1.PodIP{{IP: "127.0.0.1"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "volume", Image: "maker", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	if err := w.kube.Status().Update(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
}

// says waits until the record says this.
func (w *workshop) says(c *container, reason, message string) *accessv1.ContainerVolume {
	w.t.Helper()
	record := &accessv1.ContainerVolume{}
	eventually(w.t, "the record says "+reason+" "+message, func() (bool, error) {
		if err := w.kube.Get(w.t.Context(), w.key(c), record); err != nil {
			return false, err
		}
		if record.Status.Reason == reason && strings.Contains(record.Status.Message, message) {
			return true, nil
		}
		return false, fmt.Errorf("it says %s: %s; the container was asked %q", record.Status.Reason, record.Status.Message, c.heard())
	})
	return record
}

// TestContainerAnswers: answers pass the API server's own judgement of machines, and those that do not are refused with its words.
func TestContainerAnswers(t *testing.T) {
	w := newWorkshop(t)
	for _, c := range []struct {
		name, more string
		handler    http.HandlerFunc
		reason     string
		want       string
	}{
		{"lun", "", answers("iscsi: {host: {name: h, port: \"3260\"}, " + iqn + "}"), "VolumeMade", ""},
		{"claim", "", answers("pvc: {claimname: some-pvc-name}"), "VolumeMade", ""},
		{"url", ", accessMode: read-shared", answers("http: {url: http://h/x}"), "VolumeMade", ""},
		{"url-to-write", "", answers("http: {url: http://h/x}"), "VolumeRefused", "a disk at a URL can only be read"},
		{"target", "", answers("iscsi: {host: {name: h}, portal: \"h:3260\", lun: 1}"), "VolumeRefused", "volumes[0].iscsi.portal"},
		{"port", "", answers("iscsi: {host: {name: h, port: 70000}, " + iqn + "}"), "VolumeRefused", "a port is a number from 1 to 65535"},
		{"path", "", answers("rbd: {monitors: [h], pool: p, image: x/../y}"), "VolumeRefused", "volumes[0].rbd.image"},
		{"namespace", "", answers("pvc: {claimname: other/claim}"), "VolumeRefused", "spec.source.pvc.claimname"},
		{"loopback", "", answers("nbd: {host: {name: 127.0.0.1}}"), "VolumeRefused", "is a loopback address"},
		{"again", "", answers("container: {image: maker}"), "VolumeRefused", "which a container may not give"},
		{"page", "", answers("<html></html>"), "VolumeRefused", "neither YAML nor JSON"},
		{"large", "", answers(strings.Repeat("# \n", 1<<16)), "VolumeRefused", "larger than 64 KiB"},
		{"away", "", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		}, "VolumeRefused", "Berth follows no redirect"},
		{"full", "", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the pool is full", http.StatusInsufficientStorage)
		}, "VolumeRefused", "507 Insufficient Storage: the pool is full"},
		{"slow", "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, "VolumeBeingMade", "it has been asked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			at := w.run("answers-"+c.name, c.more, c.handler)
			record := w.says(at, c.reason, c.want)
			if made := record.Spec.Source != nil; made != (c.reason == "VolumeMade") || !record.Spec.Asked {
				t.Errorf("the record is %+v", record.Spec)
			}
		})
	}
	w.t = t
}

// TestContainerCrash: the controller dies after the container has made the volume and before it has the answer; the next one asks
// again and gets the same answer. Deleted, the machine stays until the container says that the volume is gone.
func TestContainerCrash(t *testing.T) {
	w := newWorkshop(t)
	dying := make(chan struct{})
	var once sync.Once
	var free atomic.Bool
	c := w.run("crash", "", func(out http.ResponseWriter, r *http.Request) {
		first := false
		once.Do(func() { first = true; close(dying) })
		switch {
		case first:
			w.cancel() // it never hears the answer
			<-r.Context().Done()
		case r.Method == http.MethodDelete && !free.Load():
			http.Error(out, "busy", http.StatusServiceUnavailable)
		case r.Method == http.MethodDelete:
			out.WriteHeader(http.StatusNotFound)
		default:
			_, _ = io.WriteString(out, "iscsi:\n  host:\n    name: iscsi-demo-target\n    port: \"3260\"\n  portal: iqn.2017-01.io.kubevirt:sn.42\nlun: 2\n")
		}
	})
	<-dying
	<-w.ended
	record := &accessv1.ContainerVolume{}
	if err := w.kube.Get(t.Context(), w.key(c), record); err != nil || !record.Spec.Asked || record.Spec.Source != nil {
		t.Fatalf("the record does not say that there may be a volume: %+v %v", record.Spec, err)
	}
	w.start()
	record = w.says(c, "VolumeMade", "")
	if s := record.Spec.Source.ISCSI; s == nil || s.LUN != 2 || s.Host.Name != "iscsi-demo-target" {
		t.Errorf("the record says %+v", record.Spec.Source)
	}
	if heard := c.heard(); len(heard) != 2 || heard[0] != heard[1] || !strings.Contains(heard[0], `"size":"1Gi"`) {
		t.Errorf("the container was asked %q", heard)
	}
	if err := w.kube.Delete(t.Context(), c.vm); err != nil {
		t.Fatal(err)
	}
	w.says(c, "VolumeNotDeleted", "503 Service Unavailable: busy")
	free.Store(true)
	eventually(t, "everything is gone", func() (bool, error) {
		for _, o := range []struct {
			key types.NamespacedName
			obj client.Object
		}{{client.ObjectKeyFromObject(c.vm), &kubevirt.VirtualMachine{}}, {w.key(c), record}, {w.key(c), &corev1.Pod{}}, {w.key(c), &corev1.Secret{}}} {
			if err := w.kube.Get(t.Context(), o.key, o.obj); !apierrors.IsNotFound(err) {
				return false, fmt.Errorf("%T is there: %w", o.obj, err)
			}
		}
		return true, nil
	})
	if heard := c.heard(); len(heard) < 4 || slices.ContainsFunc(heard[2:], func(h string) bool { return !strings.HasPrefix(h, "DELETE ") }) {
		t.Errorf("the container was asked %q", heard)
	}
}
