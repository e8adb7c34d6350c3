package localdisk

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// victim is a driver in a process of its own that dies at a step, and is started again.
type victim struct {
	t       *testing.T
	pool    string
	starts  int
	crashed bool
	process *exec.Cmd
	stderr  bytes.Buffer
	client
}

// start runs the driver; at 0 it lives on.
func (v *victim) start(at int) {
	v.t.Helper()
	v.starts++
	socket := filepath.Join(v.t.TempDir(), fmt.Sprint(v.starts))
	v.stderr.Reset()
	v.process = exec.CommandContext(v.t.Context(), os.Args[0])
	v.process.Env = append(os.Environ(), envRole+"=driver", envPool+"="+v.pool, envSocket+"="+socket, fmt.Sprint(envCrashAt, "=", at))
	v.process.Stderr = &v.stderr
	v.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := v.process.StdoutPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	if err := v.process.Start(); err != nil {
		v.t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		v.t.Fatalf("the driver does not start: %q, %v\n%s", line, err, &v.stderr)
	}
	v.client = dial(v.t, socket)
}

func (v *victim) stop() {
	_ = v.process.Process.Kill()
	_ = v.process.Wait()
}

// do makes a call; if the driver dies in it, it is started again, everything half done must be gone, and the call is repeated.
func (v *victim) do(name string, call func() error) {
	v.t.Helper()
	err := call()
	if status.Code(err) == codes.Unavailable && !v.crashed {
		_ = v.process.Wait()
		v.t.Logf("%s: %s", name, bytes.TrimSpace(v.stderr.Bytes()))
		v.crashed = true
		v.start(0)
		v.tidy()
		err = call()
	}
	if err != nil {
		v.t.Fatalf("%s: %v\n%s", name, err, &v.stderr)
	}
}

// tidy checks that nothing is half made or half removed.
func (v *victim) tidy() {
	v.t.Helper()
	for _, name := range []string{dirMaking, dirTrash} {
		entries, err := os.ReadDir(filepath.Join(v.pool, name))
		if err != nil || len(entries) > 0 {
			v.t.Errorf("%s has %v, %v", name, entries, err)
		}
	}
}

// empty checks that nothing is there at all.
func (v *victim) empty() {
	v.t.Helper()
	v.tidy()
	for _, name := range []string{dirVolumes, dirSnapshots} {
		entries, err := os.ReadDir(filepath.Join(v.pool, name))
		if err != nil || len(entries) > 0 {
			v.t.Errorf("%s has %v, %v", name, entries, err)
		}
	}
}

// everyStep runs a story again and again, with the driver dying one step later each time, until it gets through alive.
func everyStep(t *testing.T, newPool func(*testing.T) string, story func(*victim)) {
	const tooMany = 200
	for at := 1; ; at++ {
		alive := false
		t.Run(fmt.Sprint("step", at), func(t *testing.T) {
			v := &victim{t: t, pool: newPool(t)}
			v.start(at)
			defer func() { v.stop() }()
			story(v)
			alive = !v.crashed
		})
		if alive || t.Failed() {
			return
		}
		if at == tooMany {
			t.Fatalf("the story has more than %d steps", tooMany)
		}
	}
}

// TestCrashAtEveryStep of the calls that need no privilege.
func TestCrashAtEveryStep(t *testing.T) {
	t.Parallel()
	everyStep(t, func(t *testing.T) string { return t.TempDir() }, func(v *victim) {
		t, ctx := v.t, v.t.Context()
		image := func(handle string) string {
			i, err := parseID(kindOf(handle), handle)
			if err != nil {
				t.Fatal(err)
			}
			return (&pool{Settings: Settings{Dir: v.pool}}).image(i)
		}
		handles := map[string]string{}
		create := func(name, from string) {
			v.do("create "+name, func() error {
				r := asking(name, 8)
				if from != "" && kindOf(handles[from]) == kindSnapshot {
					r.VolumeContentSource = fromSnapshot(handles[from])
				} else if from != "" {
					r.VolumeContentSource = fromVolume(handles[from])
				}
				made, err := v.CreateVolume(ctx, r)
				handles[name] = made.GetVolume().GetVolumeId()
				return err
			})
		}
		create("source", "")
		if err := os.WriteFile(image(handles["source"]), bytes.Repeat([]byte("berth"), 8<<20/5+1)[:8<<20], 0); err != nil {
			t.Fatal(err)
		}
		v.do("snapshot", func() error {
			made, err := v.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: handles["source"]})
			handles["snap"] = made.GetSnapshot().GetSnapshotId()
			return err
		})
		create("clone", "source")
		create("restored", "snap")
		v.do("expand", func() error {
			r, err := v.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
				VolumeId: handles["clone"], CapacityRange: &csi.CapacityRange{RequiredBytes: 16 << 20},
			})
			if err == nil && r.GetCapacityBytes() != 16<<20 {
				t.Errorf("expanded to %d", r.GetCapacityBytes())
			}
			return err
		})
		for _, name := range []string{"clone", "restored"} {
			if got := readAt(t, image(handles[name]), 10, 5<<10); got != "berthberth" {
				t.Errorf("%s reads %q", name, got)
			}
		}
		for _, name := range []string{"source", "clone", "restored"} {
			v.do("delete "+name, func() error {
				_, err := v.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: handles[name]})
				return err
			})
		}
		v.do("delete snapshot", func() error {
			_, err := v.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: handles["snap"]})
			return err
		})
		v.empty()
	})
}
