//go:build e2e

package netdisk

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/images/guest/pattern"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// written compares the server's bytes with what guestWrites wrote.
func written(y *fixture.Machines, file string) {
	y.T.Helper()
	got, want := make([]byte, fixture.WriteLength), make([]byte, fixture.WriteLength)
	_, _ = pattern.Stream(fixture.WriteSeed).ReadAt(want, 0)
	f, err := os.Open(file)
	if err != nil {
		y.T.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(got, testguest.DataOffset); err != nil {
		y.T.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		y.T.Error("the server has other bytes than the guest wrote")
	}
}

// writes has the guest write and compares what the server has then.
func writes(y *fixture.Machines, vm *kubevirt.VirtualMachine, file string) {
	y.T.Helper()
	y.GuestWrites(vm)
	written(y, file)
}

// untold looks for a secret where it must not be: the machine's objects and events, the launcher's log and the command
// lines of every process on this machine, the nodes' among them.
func untold(y *fixture.Machines, vm *kubevirt.VirtualMachine, secret string) {
	y.T.Helper()
	for _, list := range []client.ObjectList{&kubevirt.VirtualMachineList{}, &kubevirt.VirtualMachineInstanceList{}, &corev1.PodList{}, &corev1.EventList{}} {
		if err := y.Kube.List(y.Context(), list, client.InNamespace(y.Namespace)); err != nil {
			y.T.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			y.T.Fatal(err)
		}
		without(y, fmt.Sprintf("%T", list), text, secret)
	}
	_, launchers := y.PodsOf(y.Context(), vm)
	log, err := y.Client.CoreV1().Pods(y.Namespace).GetLogs(launchers[0].Name, &corev1.PodLogOptions{}).DoRaw(y.Context())
	if err != nil {
		y.T.Fatal(err)
	}
	without(y, "the launcher's log", log, secret)
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		y.T.Fatalf("no processes: %v", err)
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // it may have ended
		if !bytes.HasPrefix(text, []byte("tgtadm")) {
			without(y, f, text, secret)
		}
	}
}

func without(y *fixture.Machines, where string, text []byte, secret string) {
	y.T.Helper()
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	if bytes.Contains(text, []byte(secret)) || bytes.Contains(text, []byte(encoded)) {
		y.T.Errorf("%s tells the secret", where)
	}
}

// TestNetworkDiskISCSI: a guest boots from a LUN that asks for CHAP, and what it writes is on the server.
func TestNetworkDiskISCSI(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	l := y.GuestLUN("alice", "a password of CHAP's")
	vm := y.NetworkMachine("scsi", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: y.ISCSISource(l)}}})
	y.BootFromNetwork(vm)
	writes(y, vm, l.File)
	untold(y, vm, l.Password)
}
