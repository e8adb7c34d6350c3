//go:build e2e

package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/restore"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// drills is a machine's backups, and the drills of it.
type drills struct {
	*fixture.Machines
	virtctl *fixture.Virtctl
	set     *moments
}

// args are those of a drill of a set.
func (d *drills) args(set string, more ...string) []string {
	return append([]string{"vm", "restore", "web", "--from", "backups/" + set, "--verify", "--storage-class", fixture.ClassDisk, "-o", "json"}, more...)
}

// run carries out a drill, which leaves nothing.
func (d *drills) run(set string, more ...string) (r restore.Report, code int) {
	d.T.Helper()
	out := d.virtctl.Run(d.args(set, more...)...)
	if err := json.Unmarshal([]byte(out.Out), &r); err != nil {
		d.T.Fatalf("%v\n%s%s", err, out.Out, out.Err)
	}
	if !r.Removed {
		d.T.Errorf("it left something: %+v", r)
	}
	d.nothingLeft()
	return r, out.Code
}

// nothingLeft: of what drills make, nothing is there when the garbage collector has come by.
func (d *drills) nothingLeft() {
	d.T.Helper()
	d.Wait("nothing to be left of a drill", time.Minute, func(context.Context) (bool, string) {
		var left []string
		for line := range strings.FieldsSeq(d.Kubectl("get", "vm,vmi,dv,pvc,volumebackupsources,virtualmachineexports,secrets,configmaps", "-o", "name")) {
			if _, name, _ := strings.Cut(line, "/"); strings.HasPrefix(name, "drill-") || strings.Contains(name, "restore-") {
				left = append(left, line)
			}
		}
		return len(left) == 0, strings.Join(left, " ")
	})
}

// begin starts a drill in a process of its own, and returns when its copy is there.
func (d *drills) begin() *exec.Cmd {
	d.T.Helper()
	cmd := exec.Command(fixture.VirtctlProgram, append(d.args("web", "--console-line", "never said"), d.virtctl.Args...)...)
	if err := cmd.Start(); err != nil {
		d.T.Fatal(err)
	}
	d.Wait("the copy of the drill", fixture.BootPatience, func(context.Context) (bool, string) {
		said := d.Kubectl("get", "dv", "-l", names.Drill, "-o", "name")
		return said != "", said
	})
	return cmd
}

// TestRestoreDrill: a drill boots a copy of a moment in a chain of ten without a network, waits until its disk is full, and removes it; one that fails says why; what
// a drill leaves that is killed is removed by the next one.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	d := &drills{Machines: y, virtctl: fixture.NewVirtctl(t, y.Env)}
	d.set = backUp(t, filepath.Join(y.SharedClaim("backups"), "web"), backedUp(y))

	r, code := d.run("web", "--at", "b6", "--console-line", "^berth-guest: ready", "--deadline", "10m")
	if code != 0 || !r.Passed || r.Checkpoint != "b6" || r.UpAfter == nil || r.FullAfter == nil {
		t.Errorf("a good backup: %d %+v", code, r)
	}
	r, code = d.run("web", "--console-line", "never said", "--deadline", "3m")
	if code != 1 || r.Result != "NotUpInTime" || !strings.Contains(strings.Join(r.Console, "\n"), "berth-guest: ") {
		t.Errorf("a guest that does not say it: %d %+v", code, r)
	}
	if strings.Contains(strings.Join(r.Console, "\n"), "berth-guest: network ") {
		t.Errorf("it has a network: %q", r.Console)
	}
	d.torn()
	d.killed()
	d.scheduled()
}

// torn: a chain whose data is wrong fails the drill, which names the file.
func (d *drills) torn() {
	d.T.Helper()
	torn := filepath.Join(filepath.Dir(d.set.dir), "torn")
	if err := os.CopyFS(torn, os.DirFS(d.set.dir)); err != nil {
		d.T.Fatal(err)
	}
	(&moments{dir: torn}).readable(d.T)
	image := filepath.Join(torn, "b3", "root.qcow2")
	info, err := os.Stat(image)
	if err == nil {
		err = os.Truncate(image, info.Size()-100)
	}
	if err != nil {
		d.T.Fatal(err)
	}
	r, code := d.run("torn", "--at", "b5", "--console-line", "never said")
	if code != 1 || r.Result != "DiskFailed" || !strings.Contains(r.Message, "b3/root.qcow2") {
		d.T.Errorf("a torn chain: %d %+v", code, r)
	}
}

// killed: ctrl-c has a drill remove what it made; after kill -9 the next one does.
func (d *drills) killed() {
	d.T.Helper()
	cmd := d.begin()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		d.T.Fatal(err)
	}
	_ = cmd.Wait() // its code follows
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		d.T.Errorf("after ctrl-c it ended with %d", code)
	}
	d.nothingLeft()

	cmd = d.begin()
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		d.T.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if r, code := d.run("web", "--console-line", "^berth-guest: ready", "--boot-only", "--deadline", "10m"); code != 0 {
		d.T.Errorf("after a kill: %d %+v", code, r)
	}
}

// scheduled: the CronJob of the example works with the rights of the example.
func (d *drills) scheduled() {
	d.T.Helper()
	text, err := os.ReadFile("../../../examples/restore-drill.yaml")
	if err != nil {
		d.T.Fatal(err)
	}
	manifest := strings.Replace(string(text), "--output=json]", fmt.Sprintf("--output=json, --console-line=ready, --storage-class=%s]", fixture.ClassDisk), 1)
	fixture.ApplyYAML(d.Machines, strings.Replace(manifest, "namespace: default}", "namespace: "+d.Namespace+"}", 1))
	d.Kubectl("create", "job", "now", "--from=cronjob/restore-drill-web")
	d.Wait("the Job of the drill", fixture.BootPatience, func(context.Context) (bool, string) {
		said := d.Kubectl("get", "job", "now", "-o", "jsonpath={.status.succeeded} {.status.conditions}")
		return strings.HasPrefix(said, "1 "), said
	})
	if log := d.Kubectl("logs", "job/now"); !strings.Contains(log, `"passed": true`) {
		d.T.Errorf("its log has no report:\n%s", log)
	}
	d.nothingLeft()
}
