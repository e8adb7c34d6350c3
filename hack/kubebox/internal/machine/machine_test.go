package machine

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseCommand(t *testing.T) {
	got, ok := parseCommand("kubebox\x00machine-init\x00/src/.kubebox\x00node1\x00")
	if !ok || got.StateDir != "/src/.kubebox" || got.Name != "node1" {
		t.Errorf("got %+v, %t", got, ok)
	}
	for _, other := range []string{"", "kubebox\x00kubelet\x00a\x00b\x00", "vi\x00machine-init\x00a\x00b\x00", "kubebox\x00machine-init\x00a\x00"} {
		if _, ok := parseCommand(other); ok {
			t.Errorf("%q is taken for a machine", other)
		}
	}
}

func TestThisProcessIsNoMachine(t *testing.T) {
	if isInit(os.Getpid()) && os.Getpid() != 1 {
		t.Error("an ordinary process is taken for the first of a namespace")
	}
}

// TestKillProcess: of two processes it is the one with that number in that machine that ends.
func TestKillProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("making a process namespace takes root; what is not there is refused to anybody")
	}
	if err := (Running{Name: "none", PID: 1 << 30}).KillProcess(1); err == nil {
		t.Error("killed a process of a machine that does not run")
	}
	if os.Geteuid() != 0 {
		return
	}
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := Running{Name: "asleep", PID: cmd.Process.Pid}
	if err := m.KillProcess(2); err == nil {
		t.Error("killed a process that is not there")
	}
	if err := m.KillProcess(1); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
}

func TestInitRefusesToBeCalledByHand(t *testing.T) {
	if err := Init([]string{"/state", "node1"}); err == nil {
		t.Error("init ran outside of a machine")
	}
}

func TestDescribe(t *testing.T) {
	if got := describe(unix.WaitStatus(3 << 8)); got != "ended with exit code 3" {
		t.Error(got)
	}
	if got := describe(unix.WaitStatus(unix.SIGKILL)); got != "killed by killed" {
		t.Error(got)
	}
}
