//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/images/guest/pattern"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// sluice lets what a guest asks for pass, which is little at a time, and holds what a worker fetches by itself until it is opened.
type sluice struct {
	files http.Handler
	open  atomic.Bool
	down  atomic.Bool   // it breaks off every connection
	other atomic.Bool   // it has another file than before
	era   atomic.Uint32 // what was begun in an earlier one is broken off
}

func (s *sluice) set(b *atomic.Bool, value bool) {
	b.Store(value)
	s.era.Add(1)
}

func (s *sluice) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.down.Load() {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("ETag", fmt.Sprintf(`"other-%t"`, s.other.Load()))
	s.files.ServeHTTP(&sluiced{w, r.Context(), s, s.era.Load(), 0}, r)
}

type sluiced struct {
	http.ResponseWriter
	ctx  context.Context
	gate *sluice
	era  uint32
	sent int
}

func (s *sluiced) Write(p []byte) (int, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.sent += len(p); s.sent > 5<<19 && !s.gate.open.Load() && s.ctx.Err() == nil; {
		if s.gate.era.Load() != s.era {
			panic(http.ErrAbortHandler)
		}
		<-tick.C
	}
	return s.ResponseWriter.Write(p)
}

// earlyMachine is one that runs while its disk is imported.
type earlyMachine struct {
	*yard
	vm    *kubevirt.VirtualMachine
	gate  *sluice
	root  string // its DataVolume
	wrote int
}

// newEarly starts one. It is asked for at the machine's volume, or by an annotation of the DataVolume.
func newEarly(t *testing.T, file string, annotated bool, source func(url string) *cdiv1.DataVolumeSource) *earlyMachine {
	t.Helper()
	e := &earlyMachine{yard: newYard(t), gate: &sluice{files: http.StripPrefix("/bucket", http.FileServer(http.Dir(guestDir)))}}
	e.vm = e.example("vm-early.yaml", "early")
	root := &e.vm.Spec.DataVolumeTemplates[0]
	e.root, root.Spec.Source = root.ObjectMeta.Name, source(e.Serve(e.gate)+"/bucket/"+file)
	if annotated {
		e.vm.Spec.Template.Spec.Volumes[0].BootEarly = false
		root.ObjectMeta.Annotations = map[string]string{"berth.dev/boot-early": "true"}
	}
	e.create(e.vm)
	e.status(e.vm, kubevirt.StatusRunning, boot)
	e.guestSays(e.vm, "berth-guest: ready")
	e.saysOfRoot(cdiv1.ImportInProgress, "booted, ")
	return e
}

func areaOf(i int) (offset int64) { return testguest.DataOffset + int64(i)*(8<<20) }

// write has the guest write where it has not written so far.
func (e *earlyMachine) write() {
	e.T.Helper()
	area := fmt.Sprintf("serial=root %d %d %d", areaOf(e.wrote), writeLength, writeSeed)
	e.typeLine(e.vm, "write "+area)
	e.wrote++
	e.guestSays(e.vm, "berth-guest: write "+area+": ")
}

// sourceAway takes the source away until the guest is paused by a read that needs it, and everybody says so. Then the guest goes on.
func (e *earlyMachine) sourceAway() {
	e.T.Helper()
	e.gate.set(&e.gate.down, true)
	question := fmt.Sprintf("sha256 serial=root %d %d", areaOf(20), 64<<10)
	e.typeLine(e.vm, question)
	e.reason(e.vm, "DiskSourceAway", "the source of volume root does not answer since ")
	has(e.T, newTool(e.T, e.Env).must("vm", "status", e.vm.Name), "Paused", "the guest is paused since ", "goes on by itself when it is back", "the source of volume root")
	e.gate.set(&e.gate.down, false)
	image, err := os.ReadFile(guestDir + "/" + testguest.Raw)
	if err != nil {
		e.T.Fatal(err)
	}
	e.guestSays(e.vm, "berth-guest: "+question+": "+sum(image[areaOf(20):areaOf(20)+64<<10], 64<<10))
	e.status(e.vm, kubevirt.StatusRunning, patience)
}

// reads has the guest read what it wrote.
func (e *earlyMachine) reads() {
	e.T.Helper()
	for i := range e.wrote {
		area := fmt.Sprintf("serial=root %d %d %d", areaOf(i), writeLength, writeSeed)
		e.typeLine(e.vm, "verify "+area)
		e.guestSays(e.vm, "berth-guest: verify "+area+": same")
	}
}

// whole lets the import end, and compares the disk with the image and what the guest wrote. The guest itself writes before 1 MiB.
func (e *earlyMachine) whole() {
	e.T.Helper()
	e.gate.open.Store(true)
	e.saysOfRoot(cdiv1.Succeeded, "")
	e.write()
	e.reads()
	want, err := os.ReadFile(guestDir + "/" + testguest.Raw)
	if err != nil {
		e.T.Fatal(err)
	}
	for i := range e.wrote {
		if _, err := pattern.Stream(writeSeed).ReadAt(want[areaOf(i):areaOf(i)+writeLength], 0); err != nil {
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
		e := newEarly(t, testguest.Raw, true, func(url string) *cdiv1.DataVolumeSource {
			return &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}}
		})
		e.write()
		e.kubectl("delete", "pod", "--wait=false", "importer-"+e.root)
		e.write() // it waits for the next worker
		e.sourceAway()
		e.write()
		_, launchers := e.pods(t.Context(), e.vm)
		e.kubectl("delete", "pod", "--wait=false", "--grace-period=1", launchers[0].Name)
		e.Wait("the next launcher", boot, func(ctx context.Context) (bool, string) {
			_, now := e.pods(ctx, e.vm)
			return len(now) == 1 && now[0].UID != launchers[0].UID && now[0].Status.Phase == corev1.PodRunning, fmt.Sprintf("%d launchers", len(now))
		})
		e.status(e.vm, kubevirt.StatusRunning, boot)
		e.guestSays(e.vm, "berth-guest: ready")
		e.reads()
		e.whole()
	})
	// Its source has another file in the middle: the guest stands still and everybody says why, until the file is back.
	t.Run("changed", func(t *testing.T) {
		t.Parallel()
		e := newEarly(t, testguest.QCOW2Compressed, false, func(url string) *cdiv1.DataVolumeSource {
			return &cdiv1.DataVolumeSource{S3: &cdiv1.DataVolumeSourceS3{URL: url}}
		})
		e.write()
		e.gate.set(&e.gate.other, true)
		e.status(e.vm, kubevirt.StatusPaused, patience)
		e.reason(e.vm, "DiskCondemned", "tried again")
		has(t, newTool(t, e.Env).must("vm", "status", e.vm.Name), "Paused", "volume root will not be completed")
		e.gate.set(&e.gate.other, false)
		e.status(e.vm, kubevirt.StatusRunning, boot)
		e.whole()
	})
}

// saysOfRoot waits until the machine's first DataVolume is in a phase and says this.
func (e *earlyMachine) saysOfRoot(phase cdiv1.DataVolumePhase, text string) {
	e.T.Helper()
	e.Wait(fmt.Sprintf("DataVolume %s to be %s and to say %q", e.root, phase, text), boot, func(ctx context.Context) (bool, string) {
		var dv cdiv1.DataVolume
		if err := e.kube.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: e.root}, &dv); err != nil {
			return false, err.Error()
		}
		said := ""
		for _, c := range dv.Status.Conditions {
			said += c.Message + "; "
		}
		return dv.Status.Phase == phase && strings.Contains(said, text), fmt.Sprintf("%s: %s", dv.Status.Phase, said)
	})
}
