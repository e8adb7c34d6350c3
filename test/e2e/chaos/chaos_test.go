//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// chaosVariable names how long parts are killed; CI has less time than a night.
const chaosVariable = "E2E_CHAOS"

const (
	chaosDisk     = "40Mi"
	chaosDiskSize = 40 * fixture.MiB
	// settle is how long everything may take to come to rest after the last fault: a node that was cut is missed for a minute.
	settle = 10 * time.Minute
)

// chaos is a run: what is to be there in the end, and what was done to it.
type chaos struct {
	*fixture.Volumes
	door   *fixture.Uploads
	random *rand.Rand
	images [][]byte // by number

	volumes  map[string]*chaosVolume
	machines map[string]*kubevirt.VirtualMachine
	made     map[string]int // operations by name
	done     map[string]int // faults by name
	number   int

	uploads sync.WaitGroup
	lasting map[string]lasting // by fault
	full    map[string]bool    // nodes whose pool has been full
	right   int                // disks that were compared
}

// chaosVolume is a volume that was asked for and the number of the image it is to hold.
type chaosVolume struct {
	image int
	class string
	from  string // the volume it is made of, if any
}

// TestChaos kills and cuts off every part at random while volumes are imported, cloned, uploaded and restored from snapshots,
// and machines come and go. When it stops, every disk that says Succeeded is compared bit by bit with what it should be,
// what is to run runs, and of what was deleted nothing is left. It runs for a minute, or for as long as E2E_CHAOS says; it is
// not run beside other tests, which would lose their pods.
func TestChaos(t *testing.T) {
	limit := time.Minute
	if text := os.Getenv(chaosVariable); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	c := newChaos(t)
	began, over := time.Now(), time.NewTimer(limit)
	step := time.NewTicker(1500 * time.Millisecond)
	defer step.Stop()
	for turn, done := 0, false; !done; turn++ {
		if turn%3 == 2 {
			c.fault()
		} else {
			c.work()
		}
		select {
		case <-step.C:
		case <-over.C:
			done = true
		}
	}
	c.mend(c.Env)
	c.uploads.Wait()
	calm := time.Now()
	c.rest()
	t.Logf("%s of faults %v under %v; everything had come to rest %s later", calm.Sub(began).Round(time.Second), c.done, c.made,
		time.Since(calm).Round(time.Second))
	for name := range c.volumes {
		c.compare(name)
	}
	if c.right == 0 {
		t.Error("no disk was complete, so nothing was tested")
	}
	c.clear()
	t.Logf("%d disks were compared bit by bit; nothing is left; %s in all", c.right, time.Since(began).Round(time.Second))
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	b := fixture.NewVolumes(t)
	b.Kube = fixture.NewClient(t, b.Config)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := &chaos{Volumes: b, door: fixture.NewUploads(b), random: rand.New(rand.NewPCG(seed, 1)), volumes: map[string]*chaosVolume{},
		machines: map[string]*kubevirt.VirtualMachine{}, made: map[string]int{}, done: map[string]int{}, lasting: map[string]lasting{},
		full: map[string]bool{}}
	for n := range 3 {
		data := fixture.DiskImage(12 + 4*n)
		for i := range data {
			data[i] ^= byte(n * 37)
		}
		c.images = append(c.images, data)
		b.Web.Put(fmt.Sprintf("/%d.img", n), data)
	}
	b.Web.URL = b.Serve(&lossy{next: b.Web, random: rand.New(rand.NewPCG(seed, 2))})
	t.Cleanup(func() { c.mend(c.Outliving()) }) // whatever happens, the cluster is as it was
	return c
}

// lossy is a source that is slow, refuses and breaks off.
type lossy struct {
	next   http.Handler
	mu     sync.Mutex
	random *rand.Rand
}

func (l *lossy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	n := l.random.IntN(10)
	l.mu.Unlock()
	switch {
	case n == 0:
		http.Error(w, "busy", http.StatusServiceUnavailable)
	case n < 3:
		l.next.ServeHTTP(&slow{ResponseWriter: w, left: 3 * fixture.MiB / 2}, r)
	default:
		l.next.ServeHTTP(&slow{ResponseWriter: w, left: 1 << 40}, r)
	}
}

// slow lets a few MiB a second pass, and breaks off after so many bytes.
type slow struct {
	http.ResponseWriter
	left int64
}

func (s *slow) Write(p []byte) (int, error) {
	const piece, pause = 64 << 10, 8 * time.Millisecond
	sent := 0
	for len(p) > 0 {
		n := min(len(p), piece)
		if s.left -= int64(n); s.left < 0 {
			panic(http.ErrAbortHandler)
		}
		m, err := s.ResponseWriter.Write(p[:n])
		sent += m
		if err != nil {
			return sent, err
		}
		p = p[n:]
		<-time.After(pause)
	}
	return sent, nil
}

// persist tries until the API server has taken it: it may be the very part that was killed.
func (c *chaos) persist(what string, do func(ctx context.Context) error) {
	c.T.Helper()
	c.Wait(what, settle, func(ctx context.Context) (bool, string) {
		err := do(ctx)
		if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			return true, ""
		}
		return false, err.Error()
	})
}

func (c *chaos) put(obj client.Object) {
	c.T.Helper()
	obj.SetNamespace(c.Namespace)
	c.persist("make "+obj.GetName(), func(ctx context.Context) error { return c.Kube.Create(ctx, obj.DeepCopyObject().(client.Object)) })
}

func (c *chaos) remove(obj client.Object) {
	c.T.Helper()
	obj.SetNamespace(c.Namespace)
	c.persist("delete "+obj.GetName(), func(ctx context.Context) error { return c.Kube.Delete(ctx, obj) })
}

// most is how many volumes and machines there are at once: as many as the smallest machine can run.
const most = 8

// work asks for something, or takes something away.
func (c *chaos) work() {
	c.T.Helper()
	n := c.random.IntN(10)
	switch {
	case len(c.machines) < most/2 && n < 3:
		c.machine()
	case len(c.volumes) >= most || n == 9:
		c.drop()
	case n < 6:
		c.imported()
	case n == 6:
		c.uploaded()
	case n == 7:
		c.restored()
	default:
		c.cloned()
	}
}

func (c *chaos) name(kind string) string {
	c.number++
	c.made[kind]++
	return fmt.Sprintf("%s-%d", kind, c.number)
}

func (c *chaos) disk(name, class string, source *cdiv1.DataVolumeSource) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cdiv1.DataVolumeSpec{Source: source,
		Storage: &cdiv1.StorageSpec{StorageClassName: &class, Resources: fixture.StorageRequest(chaosDisk),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}}
}

func (c *chaos) class() string {
	return []string{fixture.ClassImmediate, fixture.ClassDiskImmediate}[c.random.IntN(2)]
}

func (c *chaos) imported() {
	v := &chaosVolume{image: c.random.IntN(len(c.images)), class: c.class()}
	name := c.name("import")
	c.volumes[name] = v
	c.put(c.disk(name, v.class, &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: fmt.Sprintf("%s/%d.img", c.Web.URL, v.image)}}))
}

// any is the name of a volume that holds; "" if none does.
func (c *chaos) any(holds func(string, *chaosVolume) bool) string {
	var names []string
	for name, v := range c.volumes {
		if holds(name, v) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names) // so that a seed makes the same choices
	return names[c.random.IntN(len(names))]
}

// cloned asks for a clone of a volume that may not be filled yet.
func (c *chaos) cloned() {
	from := c.any(func(string, *chaosVolume) bool { return true })
	if from == "" {
		c.imported()
		return
	}
	v := &chaosVolume{image: c.volumes[from].image, class: c.class(), from: from}
	name := c.name("clone")
	c.volumes[name] = v
	c.put(c.disk(name, v.class, &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: c.Namespace, Name: from}}))
}

// restored takes a snapshot of a volume that is complete and asks for another out of it.
func (c *chaos) restored() {
	from := c.any(func(name string, v *chaosVolume) bool {
		return v.class == fixture.ClassDiskImmediate && c.phase(name) == cdiv1.Succeeded
	})
	if from == "" {
		c.imported()
		return
	}
	name := c.name("snapshot")
	c.volumes[name] = &chaosVolume{image: c.volumes[from].image, class: fixture.ClassDiskImmediate, from: from}
	s := &unstructured.Unstructured{Object: map[string]any{"apiVersion": fixture.SnapshotGroup + "/v1", "kind": "VolumeSnapshot",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"volumeSnapshotClassName": fixture.ClassDisk, "source": map[string]any{"persistentVolumeClaimName": from}}}}
	c.put(s)
	c.put(c.disk(name, fixture.ClassDiskImmediate, &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: c.Namespace, Name: name}}))
}

func (c *chaos) phase(name string) cdiv1.DataVolumePhase {
	var dv cdiv1.DataVolume
	if err := c.Kube.Get(c.Context(), client.ObjectKey{Namespace: c.Namespace, Name: name}, &dv); err != nil {
		return cdiv1.Unknown
	}
	return dv.Status.Phase
}

// uploaded asks for an upload and sends the image until it has arrived.
func (c *chaos) uploaded() {
	v := &chaosVolume{image: c.random.IntN(len(c.images)), class: c.class()}
	name := c.name("upload")
	c.volumes[name] = v
	c.put(c.disk(name, v.class, &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}))
	c.uploads.Go(func() { c.send(name, c.images[v.image]) })
}

// machine makes one with a disk of each kind of storage, half of them without DataVolumes.
func (c *chaos) machine() {
	y := &fixture.Machines{Env: c.Env, Kube: c.Kube}
	vm := y.TinyMachine(c.name("machine"), fixture.ClassWaits, fixture.ClassDisk)
	if c.random.IntN(2) == 0 {
		fixture.InClaimTemplates(vm)
	}
	c.machines[vm.Name] = vm
	c.put(vm)
}

// drop deletes a machine, or a volume that came to its end and that nothing on its way is made of. The volume is compared first.
func (c *chaos) drop() {
	c.T.Helper()
	if len(c.machines) > 0 && c.random.IntN(2) == 0 {
		for name, vm := range c.machines {
			delete(c.machines, name)
			c.made["machine deleted"]++
			c.remove(vm.DeepCopy())
			return
		}
	}
	ended := func(name string) bool { p := c.phase(name); return p == cdiv1.Succeeded || p == cdiv1.Failed }
	name := c.any(func(name string, _ *chaosVolume) bool {
		needed := c.any(func(other string, v *chaosVolume) bool { return v.from == name && !ended(other) })
		return needed == "" && ended(name)
	})
	if name == "" || len(c.lasting) > 0 {
		return // a disk on a node that is cut off cannot be read
	}
	reach(c.Env)
	c.compare(name)
	c.made["volume deleted"]++
	c.discard(name)
	delete(c.volumes, name)
}

func (c *chaos) discard(name string) {
	c.T.Helper()
	c.remove(&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if strings.HasPrefix(name, "snapshot") {
		s := &unstructured.Unstructured{Object: map[string]any{"apiVersion": fixture.SnapshotGroup + "/v1", "kind": "VolumeSnapshot"}}
		s.SetName(name)
		c.remove(s)
	}
}

// rest waits until everything is as it was asked for.
func (c *chaos) rest() {
	c.T.Helper()
	var dv cdiv1.DataVolume
	for name, v := range c.volumes {
		c.Wait("volume "+name+" to come to its end", settle, func(ctx context.Context) (bool, string) {
			if err := c.Kube.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &dv); err != nil {
				return false, err.Error()
			}
			return c.hopeless(v) || dv.Status.Phase == cdiv1.Succeeded || dv.Status.Phase == cdiv1.Failed, fmt.Sprintf("%s: %s", dv.Status.Phase, fixture.ReadyMessageOf(&dv))
		})
		// Only a pool that was full is a reason to give a volume up, and the volume says so.
		if dv.Status.Phase == cdiv1.Failed && (len(c.full) == 0 || v.class != fixture.ClassDiskImmediate || fixture.ReadyMessageOf(&dv) == "") {
			c.T.Errorf("volume %s failed: %s", name, fixture.ReadyMessageOf(&dv))
		}
	}
	for _, vm := range c.machines {
		c.Wait("machine "+vm.Name+" to run", settle, func(ctx context.Context) (bool, string) {
			var now kubevirt.VirtualMachine
			if err := c.Kube.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: vm.Name}, &now); err != nil {
				return false, err.Error()
			}
			given := len(c.full) > 0 && c.phase(vm.Name+"-1") == cdiv1.Failed // its disk of the pool
			return given || now.Status.PrintableStatus == kubevirt.StatusRunning, fmt.Sprintf("%s: %s", now.Status.PrintableStatus, fixture.ReadyMessage(&now))
		})
	}
}

// hopeless: the volume that it is to be made of was given up, because the pool was full.
func (c *chaos) hopeless(v *chaosVolume) bool {
	from := c.volumes[v.from]
	return len(c.full) > 0 && from != nil && (c.phase(v.from) == cdiv1.Failed || c.hopeless(from))
}

// compare reads the disk if it says that it is complete.
func (c *chaos) compare(name string) {
	c.T.Helper()
	if c.phase(name) != cdiv1.Succeeded {
		return
	}
	c.HoldsSum(name, fixture.DiskSum(c.images[c.volumes[name].image], chaosDiskSize), chaosDiskSize)
	c.right++
}

// clear deletes everything and waits until nothing is left, neither in the namespace nor of its volumes.
func (c *chaos) clear() {
	c.T.Helper()
	handles, before := c.handles(), c.stored()
	for _, vm := range c.machines {
		c.remove(vm.DeepCopy())
	}
	for name := range c.volumes {
		c.discard(name)
	}
	y := &fixture.Machines{Env: c.Env, Kube: c.Kube}
	y.WaitNothingLeft()
	c.Wait("no volume and no key to be left", settle, func(ctx context.Context) (bool, string) {
		var volumes corev1.PersistentVolumeList
		if err := c.Kube.List(ctx, &volumes); err != nil {
			return false, err.Error()
		}
		var left []string
		for _, v := range volumes.Items {
			if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == c.Namespace {
				left = append(left, v.Name)
			}
		}
		var secrets corev1.SecretList
		if err := c.Kube.List(ctx, &secrets, client.InNamespace(c.Namespace)); err != nil {
			return false, err.Error()
		}
		for _, s := range secrets.Items {
			left = append(left, "secret "+s.Name)
		}
		return len(left) == 0, strings.Join(left, ", ")
	})
	after := c.stored()
	for _, h := range handles {
		if !strings.Contains(before, h) {
			c.T.Errorf("no pool had volume %s, so whether it is gone cannot be seen", h)
		}
		if strings.Contains(after, h) {
			c.T.Errorf("volume %s is still in a pool", h)
		}
	}
}

// handles are the keys by which the driver keeps the namespace's volumes.
func (c *chaos) handles() []string {
	c.T.Helper()
	var volumes corev1.PersistentVolumeList
	if err := c.Kube.List(c.Context(), &volumes); err != nil {
		c.T.Fatal(err)
	}
	var names []string
	for _, v := range volumes.Items {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == c.Namespace && v.Spec.CSI != nil {
			parts := strings.FieldsFunc(v.Spec.CSI.VolumeHandle, func(r rune) bool { return r == '-' || r == '.' }) // KIND-KEY-POOL.NODE
			if len(parts) < 2 {
				c.T.Fatalf("volume %s has the handle %q", v.Name, v.Spec.CSI.VolumeHandle)
			}
			names = append(names, parts[1])
		}
	}
	return names
}

// stored are the files in the pools of all nodes.
func (c *chaos) stored() string {
	c.T.Helper()
	var all []string
	for _, node := range c.ReadyNodes() {
		all = append(all, pool(c.Env, node, "find /pool"))
	}
	return strings.Join(all, "\n")
}

// pool runs a script in a pod that sees the pool of localdisk on a node at /pool, and returns what it printed.
func pool(e *framework.Env, node, script string) string {
	e.T.Helper()
	return strings.TrimSpace(e.Run(framework.Pod{Name: "pool-" + node, Node: node, Script: script, Change: func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "pool", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/localdisk"}}}}
		main := &p.Spec.Containers[0]
		main.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		main.VolumeMounts = []corev1.VolumeMount{{Name: "pool", MountPath: "/pool"}}
	}}))
}
