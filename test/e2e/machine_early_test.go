//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// sluice lets what a guest asks for pass, which is little at a time, and holds what a worker fetches by itself until it is opened.
type sluice struct {
	files http.Handler
	open  atomic.Bool
}

func (s *sluice) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.files.ServeHTTP(&sluiced{w, r.Context(), s, 0}, r)
}

type sluiced struct {
	http.ResponseWriter
	ctx  context.Context
	gate *sluice
	sent int
}

func (s *sluiced) Write(p []byte) (int, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.sent += len(p); s.sent > 5<<19 && !s.gate.open.Load() && s.ctx.Err() == nil; {
		<-tick.C
	}
	return s.ResponseWriter.Write(p)
}

// bootEarly lets machines start early until the test ends.
func (y *yard) bootEarly() {
	y.T.Helper()
	set := func(change func([]string) []string) {
		ctx := context.Background() // also when the test's own context has ended
		var cdi cdiv1.CDI
		if err := y.kube.Get(ctx, types.NamespacedName{Name: "cdi"}, &cdi); err != nil {
			y.T.Fatalf("read the CDI resource: %v", err)
		}
		before := cdi.DeepCopy()
		if cdi.Spec.Config == nil {
			cdi.Spec.Config = &cdiv1.CDIConfigSpec{}
		}
		cdi.Spec.Config.FeatureGates = change(cdi.Spec.Config.FeatureGates)
		if err := y.kube.Patch(ctx, &cdi, client.MergeFrom(before)); err != nil {
			y.T.Fatalf("set feature gates: %v", err)
		}
	}
	set(func(gates []string) []string { return append(gates, "BootEarly") })
	y.T.Cleanup(func() {
		set(func(gates []string) []string {
			return slices.DeleteFunc(gates, func(g string) bool { return g == "BootEarly" })
		})
	})
}

// TestMachineBootsEarly: a machine runs while its disk is imported, writes to it, outlives its worker, and ends up on the plain disk,
// which is the image with what the guest wrote.
func TestMachineBootsEarly(t *testing.T) {
	newYard(t).bootEarly()
	for name, file := range map[string]string{"raw": testguest.Raw, "qcow2": testguest.QCOW2} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			gate := &sluice{files: http.FileServer(http.Dir(guestDir))}
			y.url = y.Serve(gate) + "/" + file
			vm := y.machine("early")
			root := &vm.Spec.DataVolumeTemplates[0]
			mode := corev1.PersistentVolumeFilesystem
			root.ObjectMeta.Annotations = map[string]string{"berth.dev/boot-early": "true"}
			root.Spec.Storage.VolumeMode = &mode
			vm.Spec.Template.Spec.Domain.Devices.Disks[0].Serial = "root"
			y.create(vm)
			y.status(vm, kubevirt.StatusRunning, boot)
			y.guestSays(vm, "berth-guest: ready")
			y.saysOfRoot(vm, cdiv1.ImportInProgress, "booted")

			area := func(i int) string {
				return fmt.Sprintf("serial=root %d %d %d", testguest.DataOffset+i*8<<20, writeLength, writeSeed)
			}
			write := func(i int) {
				y.typeLine(vm, "write "+area(i))
				y.guestSays(vm, "berth-guest: write "+area(i)+": ")
			}
			write(0)
			y.kubectl("delete", "pod", "--wait=false", "importer-"+root.ObjectMeta.Name)
			write(1) // it waits for the next worker
			gate.open.Store(true)
			y.saysOfRoot(vm, cdiv1.Succeeded, "")
			write(2)
			for i := range 3 {
				y.typeLine(vm, "verify "+area(i))
				y.guestSays(vm, "berth-guest: verify "+area(i)+": same")
			}
			const quiet, length = 1 << 20, 62 << 20 // nobody writes there
			sum := "dd if=/%s/disk.img bs=1048576 skip=%d count=%d 2>/dev/null | sha256sum | cut -c1-64; "
			claim := root.ObjectMeta.Name
			out := strings.Fields(y.Run(framework.Pod{Name: "look", Claims: []string{claim}, Script: fmt.Sprintf(sum, claim, 1, 62)}))
			if want := y.fileSum(guestDir+"/"+testguest.Raw, quiet, length); len(out) != 1 || out[0] != want {
				t.Errorf("the disk has %v where the image has %s", out, want)
			}
		})
	}
}

// saysOfRoot waits until the machine's first DataVolume is in a phase and says this.
func (y *yard) saysOfRoot(vm *kubevirt.VirtualMachine, phase cdiv1.DataVolumePhase, text string) {
	y.T.Helper()
	name := vm.Spec.DataVolumeTemplates[0].ObjectMeta.Name
	y.Wait(fmt.Sprintf("DataVolume %s to be %s and to say %q", name, phase, text), boot, func(ctx context.Context) (bool, string) {
		var dv cdiv1.DataVolume
		if err := y.kube.Get(ctx, types.NamespacedName{Namespace: y.Namespace, Name: name}, &dv); err != nil {
			return false, err.Error()
		}
		said := ""
		for _, c := range dv.Status.Conditions {
			said += c.Message + "; "
		}
		return dv.Status.Phase == phase && strings.Contains(said, text), fmt.Sprintf("%s: %s", dv.Status.Phase, said)
	})
}
