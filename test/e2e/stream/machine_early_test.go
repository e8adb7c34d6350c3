//go:build e2e

package stream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/images/guest/pattern"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// sluice is a server far away. It lets what a guest asks for pass, which is little at a time, and holds what a worker fetches by
// itself until it is opened. A request is held as a whole: had it a part, a client that gives up waiting would ask for the rest
// only, and have the image in the end.
type sluice struct {
	files http.Handler
	open  atomic.Bool
	fast  atomic.Bool   // it is near
	down  atomic.Bool   // it breaks off every connection
	other atomic.Bool   // it has another file than before
	era   atomic.Uint32 // what was begun in an earlier one is broken off

	mu  sync.Mutex
	due time.Time // when everything that was sent has arrived
}

// What a server far away sends in a second, and how late it answers.
const (
	farRate  = 5_000_000
	farDelay = 50 * time.Millisecond
)

// arrive waits until so many bytes more have come through.
func (s *sluice) arrive(n int) {
	if s.fast.Load() {
		return
	}
	s.mu.Lock()
	if now := time.Now(); s.due.Before(now) {
		s.due = now
	}
	s.due = s.due.Add(time.Duration(n) * time.Second / farRate)
	due := s.due
	s.mu.Unlock()
	<-time.After(time.Until(due))
}

func (s *sluice) set(b *atomic.Bool, value bool) {
	b.Store(value)
	s.era.Add(1)
}

func (s *sluice) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.down.Load() {
		panic(http.ErrAbortHandler)
	}
	<-time.After(farDelay)
	w.Header().Set("ETag", fmt.Sprintf(`"other-%t"`, s.other.Load()))
	s.files.ServeHTTP(&sluiced{w, r.Context(), s, s.era.Load()}, r)
}

type sluiced struct {
	http.ResponseWriter
	ctx  context.Context
	gate *sluice
	era  uint32
}

// guestMost is more than a worker fetches at once for a guest, which is 2 MiB, and less than it fetches by itself, which is 4 MiB but for an image's end.
const guestMost = 5 << 19

// large: the answer is more than a guest asks for at a time.
func (s *sluiced) large() bool {
	n, err := strconv.Atoi(s.Header().Get("Content-Length"))
	return err == nil && n > guestMost
}

func (s *sluiced) Write(p []byte) (int, error) {
	if s.large() && !s.gate.open.Load() {
		_ = http.NewResponseController(s.ResponseWriter).Flush() // what the server has is told at once
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.large() && !s.gate.open.Load() && s.ctx.Err() == nil {
		if s.gate.era.Load() != s.era {
			panic(http.ErrAbortHandler)
		}
		<-tick.C
	}
	s.gate.arrive(len(p))
	return s.ResponseWriter.Write(p)
}

// earlyMachine is one that runs while its disk is imported.
type earlyMachine struct {
	*fixture.Machines
	vm    *kubevirt.VirtualMachine
	gate  *sluice
	root  string        // its DataVolume
	image func() []byte // the disk, as the source has it
	fast  func()        // brings the source near
	wrote int
}

// newEarly prepares one, whose source is behind a gate.
func newEarly(t *testing.T, files http.Handler) *earlyMachine {
	t.Helper()
	e := &earlyMachine{Machines: fixture.NewMachines(t), gate: &sluice{files: files}}
	e.fast = func() { e.gate.fast.Store(true) }
	e.vm = e.MachineOfExample("vm-early.yaml", "early")
	e.root = e.vm.Spec.DataVolumeTemplates[0].ObjectMeta.Name
	e.image = func() []byte {
		image, err := os.ReadFile(fixture.GuestDir + "/" + testguest.Raw)
		if err != nil {
			t.Fatal(err)
		}
		return image
	}
	return e
}

// ofFiles prepares one whose source is a server of files.
func ofFiles(t *testing.T) (e *earlyMachine, url string) {
	t.Helper()
	e = newEarly(t, http.StripPrefix("/bucket", http.FileServer(http.Dir(fixture.GuestDir))))
	return e, e.Serve(e.gate) + "/bucket/"
}

// annotated asks for it by an annotation of the DataVolume instead of at the machine's volume.
func (e *earlyMachine) annotated() {
	e.vm.Spec.Template.Spec.Volumes[0].BootEarly = false
	e.vm.Spec.DataVolumeTemplates[0].ObjectMeta.Annotations = map[string]string{"berth.dev/boot-early": "true"}
}

// start starts it.
func (e *earlyMachine) start(source cdiv1.DataVolumeSource) {
	e.T.Helper()
	e.vm.Spec.DataVolumeTemplates[0].Spec.Source = &source
	e.CreateMachine(e.vm)
}

// boots waits until it runs while its disk is imported.
func (e *earlyMachine) boots() {
	e.T.Helper()
	e.WaitStatus(e.vm, kubevirt.StatusRunning, fixture.BootPatience)
	e.GuestSays(e.vm, "berth-guest: ready")
	e.saysOfRoot("booted, ", cdiv1.ImportInProgress, cdiv1.CloneInProgress)
}

func areaOf(i int) (offset int64) { return testguest.DataOffset + int64(i)*(8<<20) }

// write has the guest write where it has not written so far.
func (e *earlyMachine) write() {
	e.T.Helper()
	area := fmt.Sprintf("serial=root %d %d %d", areaOf(e.wrote), fixture.WriteLength, fixture.WriteSeed)
	e.TypeLine(e.vm, "write "+area)
	e.wrote++
	e.GuestSays(e.vm, "berth-guest: write "+area+": ")
}

// sourceAway takes the source away until the guest is paused by a read that needs it, and machine and instance report it. Then the
// guest continues.
func (e *earlyMachine) sourceAway() {
	e.T.Helper()
	e.gate.set(&e.gate.down, true)
	question := fmt.Sprintf("sha256 serial=root %d %d", areaOf(20), 64<<10)
	e.TypeLine(e.vm, question)
	e.WaitReason(e.vm, "DiskSourceAway", "the source of volume root does not answer since ")
	fixture.HasTexts(e.T, fixture.NewVirtctl(e.T, e.Env).Must("vm", "status", e.vm.Name), "Paused", "the guest is paused since ", "goes on by itself when it is back", "the source of volume root")
	e.gate.set(&e.gate.down, false)
	e.GuestSays(e.vm, "berth-guest: "+question+": "+fixture.DiskSum(e.image()[areaOf(20):areaOf(20)+64<<10], 64<<10))
	e.WaitStatus(e.vm, kubevirt.StatusRunning, fixture.Patience)
}

// reads has the guest read what it wrote.
func (e *earlyMachine) reads() {
	e.T.Helper()
	for i := range e.wrote {
		area := fmt.Sprintf("serial=root %d %d %d", areaOf(i), fixture.WriteLength, fixture.WriteSeed)
		e.TypeLine(e.vm, "verify "+area)
		e.GuestSays(e.vm, "berth-guest: verify "+area+": same")
	}
}

// whole lets the import end, and compares the disk with the image and what the guest wrote. The guest itself writes before 1 MiB.
func (e *earlyMachine) whole() {
	e.T.Helper()
	e.gate.open.Store(true)
	e.write() // while it comes, slowly
	e.write()
	e.fast()
	e.saysOfRoot("", cdiv1.Succeeded)
	e.write()
	e.reads()
	want := e.image()
	for i := range e.wrote {
		if _, err := pattern.Stream(fixture.WriteSeed).ReadAt(want[areaOf(i):areaOf(i)+fixture.WriteLength], 0); err != nil {
			e.T.Fatal(err)
		}
	}
	const from, n = 1, testguest.DataOffset>>20 + testguest.DataSize>>20 - 1
	sum := sha256.Sum256(want[from<<20 : (from+n)<<20])
	out := strings.TrimSpace(e.Run(framework.Pod{Name: "look", Claims: []string{e.root},
		Script: fmt.Sprintf("dd if=/%s/disk.img bs=1048576 skip=%d count=%d 2>/dev/null | sha256sum | cut -c1-64", e.root, from, n)}))
	if out != hex.EncodeToString(sum[:]) {
		e.T.Errorf("the disk is not the image with what the guest wrote: %s, want %x", out, sum)
	}
}

// TestMachineBootsEarly: a machine runs while its disk is imported and writes to it, and ends up on the plain disk, which is the image
// with what the guest wrote, whatever ends meanwhile.
func TestMachineBootsEarly(t *testing.T) {
	t.Parallel()
	// Its worker is deleted, its source dies and comes back, its launcher is killed. What killed workers leave is looked at closely by
	// TestKilledWithAGuest in cmd/worker, controllers by TestVolumeControllerKilled.
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		e, url := ofFiles(t)
		e.annotated()
		e.start(cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url + testguest.Raw}})
		e.boots()
		e.write()
		e.Kubectl("delete", "pod", "--wait=false", "importer-"+e.root)
		e.write() // it waits for the next worker
		e.sourceAway()
		e.write()
		_, launchers := e.PodsOf(t.Context(), e.vm)
		e.Kubectl("delete", "pod", "--wait=false", "--grace-period=1", launchers[0].Name)
		e.Wait("the next launcher", fixture.BootPatience, func(ctx context.Context) (bool, string) {
			_, now := e.PodsOf(ctx, e.vm)
			return len(now) == 1 && now[0].UID != launchers[0].UID && now[0].Status.Phase == corev1.PodRunning, fmt.Sprintf("%d launchers", len(now))
		})
		e.WaitStatus(e.vm, kubevirt.StatusRunning, fixture.BootPatience)
		e.GuestSays(e.vm, "berth-guest: ready")
		e.reads()
		e.whole()
	})
	// Its image's clusters are compressed, on a plain web server.
	t.Run("compressed", func(t *testing.T) {
		t.Parallel()
		e, url := ofFiles(t)
		e.start(cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url + testguest.QCOW2Compressed}})
		e.boots()
		e.write()
		e.whole()
	})
	// Its source has another file in the middle: the guest is paused, and machine and instance say why, until the file is back.
	t.Run("changed", func(t *testing.T) {
		t.Parallel()
		e, url := ofFiles(t)
		e.start(cdiv1.DataVolumeSource{S3: &cdiv1.DataVolumeSourceS3{URL: url + testguest.QCOW2Compressed}})
		e.boots()
		e.write()
		e.gate.set(&e.gate.other, true)
		e.WaitStatus(e.vm, kubevirt.StatusPaused, fixture.Patience)
		e.WaitReason(e.vm, "DiskCondemned", "tried again")
		fixture.HasTexts(t, fixture.NewVirtctl(t, e.Env).Must("vm", "status", e.vm.Name), "Paused", "volume root will not be completed")
		e.gate.set(&e.gate.other, false)
		e.WaitStatus(e.vm, kubevirt.StatusRunning, fixture.BootPatience)
		e.whole()
	})
	t.Run("registry", func(t *testing.T) {
		t.Parallel()
		e := newEarly(t, registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		url, web := (&fixture.Volumes{Env: e.Env, Kube: e.Kube}).ServeSecurely(e.gate)
		disk, err := os.ReadFile(fixture.GuestDir + "/" + testguest.QCOW2Compressed)
		if err != nil {
			t.Fatal(err)
		}
		ref := strings.TrimPrefix(url, "https://") + "/disks/guest:1"
		containerDisk(e.Machines, ref, disk, unpacked, remote.WithTransport(web.Transport))
		e.start(cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://" + ref), CertConfigMap: new("roots")}})
		e.boots()
		e.write()
		e.whole()
	})
	t.Run("another node's claim", func(t *testing.T) {
		t.Parallel()
		e := newEarly(t, nil)
		disk := e.noisy()
		e.image = func() []byte { return bytes.Clone(disk) }
		e.vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: e.golden(disk)}
		e.start(cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: e.Namespace, Name: "golden"}})
		from := e.reader("golden")
		e.Pace(from, farRate/2)
		e.fast = func() { e.Pace(from, 0) }
		e.hasSystem()
		e.Pace(from, farRate/20) // the rest takes longer than any guest does to boot
		e.boots()
		e.write()
		e.whole()
	})
}

// noisy is the test guest's disk with bytes everywhere: what is zero at its source is not asked for, and comes at once.
func (e *earlyMachine) noisy() []byte {
	disk := e.image()
	seed := rand.NewChaCha8([32]byte{7})
	_, _ = seed.Read(disk[testguest.DataOffset : testguest.DataOffset+testguest.DataSize]) // never fails
	return disk
}

// golden makes a claim that holds the disk, and names a node that it is not on.
func (e *earlyMachine) golden(disk []byte) (elsewhere string) {
	e.T.Helper()
	url := e.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(disk))
	}))
	b := &fixture.Volumes{Env: e.Env, Kube: e.Kube}
	b.CreateVolume(fixture.Volume{Name: "golden", Class: fixture.ClassDiskImmediate, Size: "1Gi", URL: url + "/disk.img"})
	b.UntilPhase("golden", cdiv1.Succeeded)
	source := framework.VolumeNode(b.WaitBound("golden"))
	e.Wait("another node that takes pods", fixture.Patience, func(context.Context) (bool, string) {
		nodes := slices.DeleteFunc(e.ReadyNodes(), func(n string) bool { return n == source })
		if len(nodes) > 0 {
			elsewhere = nodes[0]
		}
		return elsewhere != "", source
	})
	return elsewhere
}

// reader is the worker that reads from a claim.
func (e *earlyMachine) reader(claim string) *corev1.Pod {
	e.T.Helper()
	var found *corev1.Pod
	e.Wait("a worker that reads claim "+claim, fixture.BootPatience, func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		if err := e.Kube.List(ctx, &pods, client.InNamespace(e.Namespace), client.MatchingLabels{"app": "containerized-data-importer"}); err != nil {
			return false, err.Error()
		}
		for i := range pods.Items {
			for _, v := range pods.Items[i].Spec.Volumes {
				if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim {
					found = &pods.Items[i]
				}
			}
		}
		return found != nil, fmt.Sprintf("%d workers", len(pods.Items))
	})
	return found
}

// hasSystem waits until all is there that the guest needs to boot: the rest of the image is the data of tests.
func (e *earlyMachine) hasSystem() {
	e.T.Helper()
	const need = float64(testguest.DataOffset) * 100 / (1 << 30) // the disk is as large as its claim
	e.Wait("what the guest boots from in DataVolume "+e.root, fixture.BootPatience, func(ctx context.Context) (bool, string) {
		var dv cdiv1.DataVolume
		if err := e.Kube.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: e.root}, &dv); err != nil {
			return false, err.Error()
		}
		percent, err := strconv.ParseFloat(strings.TrimSuffix(string(dv.Status.Progress), "%"), 64)
		return err == nil && percent > need, fmt.Sprintf("%s: %s", dv.Status.Phase, dv.Status.Progress)
	})
}

// saysOfRoot waits until the machine's first DataVolume is in one of these phases and says this.
func (e *earlyMachine) saysOfRoot(text string, phases ...cdiv1.DataVolumePhase) {
	e.T.Helper()
	e.Wait(fmt.Sprintf("DataVolume %s to be %v and to say %q", e.root, phases, text), fixture.BootPatience, func(ctx context.Context) (bool, string) {
		var dv cdiv1.DataVolume
		if err := e.Kube.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: e.root}, &dv); err != nil {
			return false, err.Error()
		}
		said := ""
		for _, c := range dv.Status.Conditions {
			said += c.Message + "; "
		}
		return slices.Contains(phases, dv.Status.Phase) && strings.Contains(said, text), fmt.Sprintf("%s: %s", dv.Status.Phase, said)
	})
}
