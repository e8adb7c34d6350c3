//go:build e2e

// Package e2e tests Berth on a real cluster: one test for each numbered step of the flows in docs/flows, and for what
// goes wrong on the way. Every test has a namespace of its own and compares what a pod reads from the claim with the
// source. It knows objects and behaviour, never the inside of the controller.
package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/framework"
)

const (
	mib = 1 << 20
	// patience is how long a small transfer may take on a busy machine.
	patience = 4 * time.Minute

	classWaits     = "local"
	classImmediate = "immediate"
	classStatic    = "local-static"

	guest       = 107 // the user a machine runs as
	immediately = "cdi.kubevirt.io/storage.bind.immediate.requested"
)

func TestMain(m *testing.M) { framework.Main(m, "berth", "berth-node", "localdisk") }

// bed is a test's namespace with what volumes need: typed access to them and a web server with an image.
type bed struct {
	*framework.Env
	kube client.WithWatch
	web  *web
}

func newBed(t *testing.T, options ...framework.Option) *bed {
	t.Helper()
	env := framework.New(t, options...)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, cdiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kube, err := client.NewWithWatch(env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{Env: env, kube: kube, web: &web{files: map[string][]byte{"/disk.img": image(24)}}}
	b.web.url = env.Serve(b.web)
	return b
}

// image is a raw disk of so many MiB, half data and half holes, the same in every run.
func image(size int) []byte {
	data := make([]byte, size*mib)
	seed := rand.NewChaCha8([32]byte{1})
	for i := 0; i < size; i += 2 {
		_, _ = seed.Read(data[i*mib : (i+1)*mib]) // never fails
	}
	return data
}

// sum is the sha256 of data followed by zeroes up to size: the disk as the guest shall see it.
func sum(data []byte, size int64) string {
	h := sha256.New()
	h.Write(data)
	zeroes := make([]byte, mib)
	for rest := size - int64(len(data)); rest > 0; rest -= mib {
		h.Write(zeroes[:min(rest, mib)])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// web serves files and can be told to misbehave.
type web struct {
	url string

	mu    sync.Mutex
	files map[string][]byte
	gate  chan struct{} // if set, no more than the first part of a file is sent until it is closed
	hits  int
}

func (w *web) put(path string, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files[path] = data
}

// hold makes transfers stop half-way until release.
func (w *web) hold() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gate := make(chan struct{})
	w.gate = gate
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.gate = nil
		close(gate)
	})
}

func (w *web) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	w.mu.Lock()
	data, ok := w.files[req.URL.Path]
	gate := w.gate
	w.hits++
	w.mu.Unlock()
	if !ok {
		http.NotFound(out, req)
		return
	}
	if gate != nil && req.Method == http.MethodGet && !early(req) {
		select {
		case <-gate:
		case <-req.Context().Done():
			return
		}
	}
	out.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(data)))
	http.ServeContent(out, req, req.URL.Path, time.Time{}, bytes.NewReader(data))
}

// early: the request is for the first MiB, so that a held transfer has begun and does not look dead.
func early(req *http.Request) bool {
	var from, to int
	_, err := fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-%d", &from, &to)
	return err == nil && to < mib
}

// volume is a DataVolume of an HTTP image.
type volume struct {
	name, class string
	size        string // of the claim with spec.pvc
	storage     string // instead of size: of the disk with spec.storage
	block       bool
	url         string // of the bed's web server unless set
	annotations map[string]string
	change      func(*cdiv1.DataVolume)
}

func (b *bed) volume(v volume) *cdiv1.DataVolume {
	b.T.Helper()
	if v.name == "" {
		v.name = "disk"
	}
	if v.url == "" {
		v.url = b.web.url + "/disk.img"
	}
	mode := corev1.PersistentVolumeFilesystem
	if v.block {
		mode = corev1.PersistentVolumeBlock
	}
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: v.name, Annotations: v.annotations},
		Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: v.url}}},
	}
	if v.storage != "" {
		dv.Spec.Storage = &cdiv1.StorageSpec{
			StorageClassName: &v.class, Resources: request(v.storage), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		}
	} else {
		dv.Spec.PVC = &corev1.PersistentVolumeClaimSpec{
			StorageClassName: &v.class, VolumeMode: &mode, Resources: request(v.size),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		}
	}
	if v.change != nil {
		v.change(dv)
	}
	if err := b.kube.Create(b.Context(), dv); err != nil {
		b.T.Fatalf("create DataVolume %s: %v", v.name, err)
	}
	return dv
}

func request(size string) corev1.VolumeResourceRequirements {
	return corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}
}

func (b *bed) get(name string) *cdiv1.DataVolume {
	b.T.Helper()
	var dv cdiv1.DataVolume
	if err := b.kube.Get(b.Context(), types.NamespacedName{Namespace: b.Namespace, Name: name}, &dv); err != nil {
		b.T.Fatalf("read DataVolume %s: %v", name, err)
	}
	return &dv
}

// until waits for the volume to be as wanted and returns it.
func (b *bed) until(name, what string, wanted func(*cdiv1.DataVolume) bool) *cdiv1.DataVolume {
	b.T.Helper()
	var dv cdiv1.DataVolume
	b.Wait("DataVolume "+name+" "+what, patience, func(ctx context.Context) (bool, string) {
		if err := b.kube.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: name}, &dv); err != nil {
			return false, err.Error()
		}
		return wanted(&dv), fmt.Sprintf("%s %s: %s", dv.Status.Phase, dv.Status.Progress, message(&dv))
	})
	return &dv
}

func (b *bed) untilPhase(name string, phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
	b.T.Helper()
	return b.until(name, "to be "+string(phase), func(dv *cdiv1.DataVolume) bool {
		if phase != cdiv1.Failed && dv.Status.Phase == cdiv1.Failed {
			b.T.Fatalf("DataVolume %s failed: %s", name, message(dv))
		}
		return dv.Status.Phase == phase
	})
}

func condition(dv *cdiv1.DataVolume, kind cdiv1.DataVolumeConditionType) cdiv1.DataVolumeCondition {
	for _, c := range dv.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return cdiv1.DataVolumeCondition{}
}

func message(dv *cdiv1.DataVolume) string { return condition(dv, cdiv1.DataVolumeReady).Message }

// phases records the phases a volume goes through from now on. Call the result to get them so far.
func (b *bed) phases(name string) func() []cdiv1.DataVolumePhase {
	b.T.Helper()
	w, err := b.kube.Watch(b.Context(), &cdiv1.DataVolumeList{}, client.InNamespace(b.Namespace))
	if err != nil {
		b.T.Fatalf("watch DataVolumes: %v", err)
	}
	var mu sync.Mutex
	var seen []cdiv1.DataVolumePhase
	go func() {
		for event := range w.ResultChan() {
			dv, ok := event.Object.(*cdiv1.DataVolume)
			if !ok || dv.Name != name || dv.Status.Phase == "" {
				continue
			}
			mu.Lock()
			if len(seen) == 0 || seen[len(seen)-1] != dv.Status.Phase {
				seen = append(seen, dv.Status.Phase)
			}
			mu.Unlock()
		}
	}()
	b.T.Cleanup(w.Stop)
	return func() []cdiv1.DataVolumePhase {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// consume starts a pod that uses the claim, on a node of its choice or on any.
func (b *bed) consume(claim, node string) {
	b.T.Helper()
	b.Start(framework.Pod{Name: "consumer-" + claim, Script: "sleep 3600", Claims: []string{claim}, Node: node, User: guest})
}

// holds fails the test unless a pod reads exactly these bytes, followed by zeroes up to size, from the claim.
func (b *bed) holds(claim string, data []byte, size int64) {
	b.T.Helper()
	b.sums(claim, sum(data, size), size)
}

// sums reads so much of the claim's disk. A file must be exactly as large; a device may be larger than was asked for.
func (b *bed) sums(claim, want string, size int64) {
	b.T.Helper()
	script := fmt.Sprintf(`if [ -b /dev/%[1]s ]; then head -c %[2]d /dev/%[1]s | sha256sum
else sha256sum < /%[1]s/disk.img; stat -c %%s /%[1]s/disk.img; fi`, claim, size)
	out := strings.Fields(b.Run(framework.Pod{Name: "read-" + claim, User: guest, Claims: []string{claim}, Script: script}))
	if len(out) == 0 || out[0] != want {
		b.T.Errorf("claim %s holds %v, want sha256 %s of %d bytes", claim, out, want, size)
	}
}

func (b *bed) claim(name string) *corev1.PersistentVolumeClaim {
	b.T.Helper()
	var pvc corev1.PersistentVolumeClaim
	if err := b.kube.Get(b.Context(), types.NamespacedName{Namespace: b.Namespace, Name: name}, &pvc); err != nil {
		b.T.Fatalf("read claim %s: %v", name, err)
	}
	return &pvc
}

// workers are the names of the worker pods in the namespace.
func (b *bed) workers(ctx context.Context) []string {
	var pods corev1.PodList
	if err := b.kube.List(ctx, &pods, client.InNamespace(b.Namespace), client.MatchingLabels{"app": "containerized-data-importer"}); err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, p := range pods.Items {
		names = append(names, p.Name)
	}
	return names
}

// idle fails the test if a worker appears within a few seconds.
func (b *bed) idle() {
	b.T.Helper()
	b.Stays("there is no worker", 4*time.Second, func(ctx context.Context) (bool, string) {
		names := b.workers(ctx)
		return len(names) == 0, strings.Join(names, " ")
	})
}

func (w *web) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hits
}
