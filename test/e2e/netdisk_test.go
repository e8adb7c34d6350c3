//go:build e2e

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/images/guest/pattern"
	"github.com/berth-vm/berth/test/e2e/framework"
	"github.com/berth-vm/berth/test/netserver"
)

// The servers of network disks, each started by the first test that wants it.
var tgt netserver.Once[*netserver.TGT]

func init() { framework.AtEnd(tgt.Close) }

// iscsi is the iSCSI server of all tests.
func (y *yard) iscsi() *netserver.TGT {
	y.T.Helper()
	s, err := tgt.Get(func() (*netserver.TGT, error) {
		return netserver.StartTGT(y.HostAddress(), serverDir("tgt"))
	})
	if err != nil {
		y.T.Fatal(err)
	}
	return s
}

// serverDir is a directory for a server's files that goes when the last test has ended.
func serverDir(name string) string {
	dir, err := os.MkdirTemp("", "berth-"+name+"-")
	if err != nil {
		panic(err)
	}
	framework.AtEnd(func() { _ = os.RemoveAll(dir) })
	return dir
}

// lun is a LUN of the test's own that holds the test guest.
func (y *yard) lun(user, password string) netserver.LUN {
	y.T.Helper()
	l, err := y.iscsi().Add(guestDir+"/"+testguest.Raw, user, password)
	if err != nil {
		y.T.Fatal(err)
	}
	return l
}

func (y *yard) iscsiSource(l netserver.LUN) *kubevirt.ISCSISource {
	s := &kubevirt.ISCSISource{Portal: l.Target, LUN: int32(l.Number),
		Host: kubevirt.NetworkHost{Name: y.iscsi().Address, Port: new(intstr.FromInt(y.iscsi().Port))}}
	if l.User != "" {
		s.SecretRef = &corev1.LocalObjectReference{Name: y.secret("chap", map[string]string{
			"node.session.auth.username": l.User, "node.session.auth.password": l.Password})}
	}
	return s
}

// secret makes a Secret, or says anew what is in it.
func (y *yard) secret(name string, data map[string]string) string {
	y.T.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name}, StringData: data}
	secrets := y.Client.CoreV1().Secrets(y.Namespace)
	_, err := secrets.Create(y.T.Context(), s, metav1.CreateOptions{})
	if err != nil {
		_, err = secrets.Update(y.T.Context(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		y.T.Fatal(err)
	}
	return name
}

// networked is a machine that boots the test guest from a network disk, which it has under this serial number.
func (y *yard) networked(name string, v kubevirt.Volume) *kubevirt.VirtualMachine {
	vm := y.tiny(name)
	spec := &vm.Spec.Template.Spec
	spec.Domain.Memory.Guest = new(resource.MustParse("192Mi"))
	v.Name = "root"
	spec.Volumes = []kubevirt.Volume{v}
	spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "root", Serial: "root"}}
	return vm
}

const (
	writeLength = 4 << 20
	writeSeed   = 7
)

// guestWrites has the guest write to its network disk and read it back.
func (y *yard) guestWrites(vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	y.guestWritesTo(vm, "root")
}

// guestWritesTo is the same for any of its disks.
func (y *yard) guestWritesTo(vm *kubevirt.VirtualMachine, serial string) {
	y.T.Helper()
	area := fmt.Sprintf("serial=%s %d %d %d", serial, testguest.DataOffset, writeLength, writeSeed)
	for _, verb := range []string{"write ", "verify "} {
		y.typeLine(vm, verb+area)
		y.guestSays(vm, "berth-guest: "+verb+area+": ")
	}
}

// written compares the server's bytes with what guestWrites wrote.
func (y *yard) written(file string) {
	y.T.Helper()
	got, want := make([]byte, writeLength), make([]byte, writeLength)
	_, _ = pattern.Stream(writeSeed).ReadAt(want, 0)
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
func (y *yard) writes(vm *kubevirt.VirtualMachine, file string) {
	y.T.Helper()
	y.guestWrites(vm)
	y.written(file)
}

// untold looks for a secret where it must not be: the machine's objects and events, the launcher's log and the command
// lines of every process on this machine, the nodes' among them.
func (y *yard) untold(vm *kubevirt.VirtualMachine, secret string) {
	y.T.Helper()
	for _, list := range []client.ObjectList{&kubevirt.VirtualMachineList{}, &kubevirt.VirtualMachineInstanceList{}, &corev1.PodList{}, &corev1.EventList{}} {
		if err := y.kube.List(y.Context(), list, client.InNamespace(y.Namespace)); err != nil {
			y.T.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			y.T.Fatal(err)
		}
		y.without(fmt.Sprintf("%T", list), text, secret)
	}
	_, launchers := y.pods(y.Context(), vm)
	log, err := y.Client.CoreV1().Pods(y.Namespace).GetLogs(launchers[0].Name, &corev1.PodLogOptions{}).DoRaw(y.Context())
	if err != nil {
		y.T.Fatal(err)
	}
	y.without("the launcher's log", log, secret)
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		y.T.Fatalf("no processes: %v", err)
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // it may have ended
		if !bytes.HasPrefix(text, []byte("tgtadm")) {
			y.without(f, text, secret)
		}
	}
}

func (y *yard) without(where string, text []byte, secret string) {
	y.T.Helper()
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	if bytes.Contains(text, []byte(secret)) || bytes.Contains(text, []byte(encoded)) {
		y.T.Errorf("%s tells the secret", where)
	}
}

// boots creates the machine, waits until its guest is up from the network disk, and has it write there.
func (y *yard) boots(vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
}

// TestNetworkDiskISCSI: a guest boots from a LUN that asks for CHAP, and what it writes is on the server.
func TestNetworkDiskISCSI(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	l := y.lun("alice", "a password of CHAP's")
	vm := y.networked("scsi", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{ISCSI: y.iscsiSource(l)}})
	y.boots(vm)
	y.writes(vm, l.File)
	y.untold(vm, l.Password)
}
