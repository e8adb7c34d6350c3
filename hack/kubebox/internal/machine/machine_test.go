package machine

import (
	"os"
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
