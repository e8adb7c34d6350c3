//go:build e2e

package move

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/testing/qmptest"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestWarmMove: a guest that runs in a QEMU outside of the cluster, and writes all the time, is copied while it runs, twice what changed meanwhile, and
// the rest when it is off. It starts on the cluster with everything that it had written.
func TestWarmMove(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	q := startBareQEMU(y)
	url := y.Serve(http.FileServer(http.Dir(q.served)))
	q.expect("ready")
	q.tell("churn data")

	q.copyWhole("full.raw")
	v := newStagedVolume(y, url)
	v.waitFor(cdiv1.Paused, "full.raw")
	for _, next := range []string{"1.qcow2", "2.qcow2"} {
		before := q.written()
		q.copyChanges(next)
		v.add(next, false)
		v.waitFor(cdiv1.Paused, next)
		if now := q.written(); now <= before {
			t.Fatalf("the guest wrote nothing while %s was brought: %d blocks before, %d after", next, before, now)
		}
	}
	said, sum := q.tell("calm data"), q.tell("sha256 data")
	q.typeLine("poweroff")
	q.waitOff()
	q.copyChanges("last.qcow2")
	q.end()
	v.add("last.qcow2", true)
	v.waitFor(cdiv1.Succeeded, "last.qcow2")

	vm := y.ExampleMachine("warm")
	vm.Spec.DataVolumeTemplates = vm.Spec.DataVolumeTemplates[1:]
	vm.Spec.Template.Spec.Volumes[0].DataVolume.Name = v.Name
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	if here := y.AnswerTo(vm, "sha256 data"); here != sum {
		t.Errorf("the guest wrote %q, of which the sum was %s; here it is %s", said, sum, here)
	}
	t.Logf("the guest wrote %q before it was off", said)
}

// bareQEMU is a QEMU on this machine that runs the test guest from its disk. It stays when the guest is off.
type bareQEMU struct {
	y       *fixture.Machines
	cmd     *exec.Cmd
	in      io.Writer
	lines   chan string // that the guest says, without "berth-guest: "
	monitor *qmp.Monitor
	served  string // the directory of the copies
	copies  int
}

func startBareQEMU(y *fixture.Machines) *bareQEMU {
	t := y.T
	t.Helper()
	q := &bareQEMU{y: y, lines: make(chan string, 1000), served: t.TempDir()}
	dir := t.TempDir()
	disk, socket := filepath.Join(dir, "disk.raw"), filepath.Join(dir, "qmp")
	if out, err := exec.Command("cp", "--sparse=always", filepath.Join(fixture.GuestDir, testguest.Raw), disk).CombinedOutput(); err != nil {
		t.Fatalf("copy the guest's disk: %v: %s", err, out)
	}
	q.cmd = exec.Command("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-m", "256", "-display", "none", "-nodefaults", "-no-shutdown", "-serial", "stdio",
		"-qmp", "unix:"+socket+",server=on,wait=off",
		"-blockdev", fmt.Sprintf(`{"driver":"raw","node-name":"root","discard":"unmap","file":{"driver":"file","filename":%q}}`, disk),
		"-device", "virtio-blk-pci,id=root,drive=root,bootindex=1")
	in, err := q.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := q.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	q.in, q.cmd.Stderr = in, os.Stderr
	if err := q.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(q.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if line, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "berth-guest: "); ok {
				q.lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		_ = q.cmd.Process.Kill()
		<-read
		_ = q.cmd.Wait()
	})
	q.monitor = qmptest.Await(t, socket)
	return q
}

// expect reads what the guest says until a line starts with prefix, and returns the rest of that line.
func (q *bareQEMU) expect(prefix string) string {
	q.y.T.Helper()
	for line := range q.lines {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return rest
		}
		if strings.HasPrefix(line, "error:") {
			q.y.T.Fatalf("the guest says %q, waiting for %q", line, prefix)
		}
	}
	q.y.T.Fatalf("QEMU ended before the guest said %q", prefix)
	return ""
}

func (q *bareQEMU) typeLine(command string) {
	q.y.T.Helper()
	if _, err := io.WriteString(q.in, command+"\n"); err != nil {
		q.y.T.Fatal(err)
	}
}

// tell types a command and returns its answer.
func (q *bareQEMU) tell(command string) string {
	q.y.T.Helper()
	q.typeLine(command)
	return q.expect(command + ": ")
}

// written returns how many blocks the guest has written.
func (q *bareQEMU) written() int {
	q.y.T.Helper()
	var all, written int
	said := q.tell("compare data")
	if _, err := fmt.Sscanf(said, "same %d written %d", &all, &written); err != nil {
		q.y.T.Fatalf("compare: %q", said)
	}
	return written
}

type arguments = map[string]any

func (q *bareQEMU) run(command string, with any) json.RawMessage {
	q.y.T.Helper()
	answer, err := q.monitor.Run(command, with)
	if err != nil {
		q.y.T.Fatalf("%s: %v", command, err)
	}
	return answer
}

// copyWhole copies the whole disk as it is now, and has QEMU record from then on what changes.
func (q *bareQEMU) copyWhole(name string) {
	q.y.T.Helper()
	q.copyTo(name, "raw", arguments{"sync": "full"})
}

// copyChanges copies what has changed since the copy before, and has QEMU record from then on what changes.
func (q *bareQEMU) copyChanges(name string) {
	q.y.T.Helper()
	since := q.record(q.copies)
	q.copyTo(name, "qcow2", arguments{"sync": "bitmap", "bitmap": since, "bitmap-mode": "never"})
	q.run("block-dirty-bitmap-remove", arguments{"node": "root", "name": since})
}

// record is the name of QEMU's record of what changes from a copy on.
func (q *bareQEMU) record(number int) string { return fmt.Sprintf("copy-%d", number) }

func (q *bareQEMU) copyTo(name, format string, how arguments) {
	q.y.T.Helper()
	file := filepath.Join(q.served, name)
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", format, file, fmt.Sprint(testguest.DiskSize)).CombinedOutput(); err != nil {
		q.y.T.Fatalf("create %s: %v: %s", name, err, out)
	}
	q.run("blockdev-add", arguments{"driver": format, "node-name": "copy", "file": arguments{"driver": "file", "filename": file}})
	q.copies++
	how["device"], how["target"], how["job-id"], how["auto-dismiss"] = "root", "copy", "copy", false
	q.run("transaction", arguments{"actions": []arguments{
		{"type": "block-dirty-bitmap-add", "data": arguments{"node": "root", "name": q.record(q.copies)}},
		{"type": "blockdev-backup", "data": how},
	}})
	q.await(name)
	q.run("job-dismiss", arguments{"id": "copy"})
	q.run("blockdev-del", arguments{"node-name": "copy"})
}

// await waits until the copy is complete.
func (q *bareQEMU) await(name string) {
	q.y.T.Helper()
	q.y.Wait("copy "+name, fixture.Patience, func(context.Context) (bool, string) {
		var jobs []struct{ Status, Error string }
		if err := json.Unmarshal(q.run("query-jobs", nil), &jobs); err != nil || len(jobs) != 1 {
			q.y.T.Fatalf("%v: %+v", err, jobs)
		}
		if jobs[0].Error != "" {
			q.y.T.Fatalf("copy %s: %s", name, jobs[0].Error)
		}
		return jobs[0].Status == "concluded", jobs[0].Status
	})
}

// waitOff waits until the guest has turned the machine off.
func (q *bareQEMU) waitOff() {
	q.y.T.Helper()
	q.y.Wait("the guest to be off", fixture.Patience, func(context.Context) (bool, string) {
		var s struct{ Status string }
		if err := json.Unmarshal(q.run("query-status", nil), &s); err != nil {
			q.y.T.Fatal(err)
		}
		return s.Status == "shutdown", s.Status
	})
}

// end ends QEMU.
func (q *bareQEMU) end() {
	q.y.T.Helper()
	q.run("quit", nil)
	for range q.lines {
	}
}

// stagedVolume is a DataVolume that is imported in stages.
type stagedVolume struct {
	*cdiv1.DataVolume
	y *fixture.Machines
}

// newStagedVolume creates the volume with the first stage.
func newStagedVolume(y *fixture.Machines, url string) *stagedVolume {
	y.T.Helper()
	class := "localdisk"
	v := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "warm-root", Annotations: map[string]string{names.Immediate: "true"}},
		Spec: cdiv1.DataVolumeSpec{
			Source:      &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url + "/"}},
			Checkpoints: []cdiv1.DataVolumeCheckpoint{{Current: "full.raw"}},
			Storage: &cdiv1.StorageSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: fixture.StorageRequest("1Gi")},
		},
	}
	if err := y.Kube.Create(y.Context(), v); err != nil {
		y.T.Fatal(err)
	}
	return &stagedVolume{v, y}
}

// add adds a stage to the volume.
func (v *stagedVolume) add(name string, final bool) {
	v.y.T.Helper()
	last := v.Spec.Checkpoints[len(v.Spec.Checkpoints)-1].Current
	spec := arguments{"checkpoints": append(v.Spec.Checkpoints, cdiv1.DataVolumeCheckpoint{Previous: last, Current: name}), "finalCheckpoint": final}
	patch, err := json.Marshal(arguments{"spec": spec})
	if err != nil {
		v.y.T.Fatal(err)
	}
	if err := v.y.Kube.Patch(v.y.Context(), v.DataVolume, client.RawPatch(types.MergePatchType, patch)); err != nil {
		v.y.T.Fatal(err)
	}
}

// waitFor waits until the volume is in a phase with a stage complete.
func (v *stagedVolume) waitFor(phase cdiv1.DataVolumePhase, stage string) {
	v.y.T.Helper()
	v.y.Wait(fmt.Sprintf("the volume to be %s after %s", phase, stage), fixture.BootPatience, func(ctx context.Context) (bool, string) {
		if err := v.y.Kube.Get(ctx, client.ObjectKeyFromObject(v.DataVolume), v.DataVolume); err != nil {
			return false, err.Error()
		}
		c := &corev1.PersistentVolumeClaim{}
		if err := v.y.Kube.Get(ctx, client.ObjectKeyFromObject(v.DataVolume), c); err != nil {
			return false, err.Error()
		}
		at, done := c.Annotations[names.CheckpointCurrent], c.Annotations[names.CheckpointDone] == "true"
		return v.Status.Phase == phase && (at == stage || done), fmt.Sprintf("%s at %q: %s", v.Status.Phase, at, fixture.ReadyMessageOf(v.DataVolume))
	})
}
