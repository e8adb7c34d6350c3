//go:build e2e

package e2e

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/images"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// moving is how long a small guest may take to another node on a busy machine.
const moving = 4 * time.Minute

// mover is a machine that boots the test guest's kernel and has these volumes, each under its name as its serial number.
func (y *yard) mover(name string, volumes ...kubevirt.Volume) *kubevirt.VirtualMachine {
	vm := y.tiny(name)
	bootKernel(vm, "")
	spec := &vm.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = new(int64(5))
	spec.Volumes = volumes
	for _, v := range volumes {
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirt.Disk{Name: v.Name, Serial: v.Name})
	}
	return vm
}

// answer types a command at the console of a guest and returns what it says to that.
func (y *yard) answer(vm *kubevirt.VirtualMachine, command string) string {
	y.T.Helper()
	return y.answers(vm, command)[0]
}

// answers types commands at the console of a guest, all at once since every visit takes seconds, and returns what it says to each. What it said
// to the same words before does not count.
func (y *yard) answers(vm *kubevirt.VirtualMachine, commands ...string) []string {
	y.T.Helper()
	ctx, cancel := context.WithTimeout(y.Context(), boot)
	defer cancel()
	before, err := y.Client.CoreV1().Pods(y.Namespace).GetLogs(y.launcherOf(vm).Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		y.T.Fatal(err)
	}
	old := map[string]int{}
	for _, command := range commands {
		old[command] = strings.Count(string(before), "berth-guest: "+command+": ")
	}
	log := y.console(ctx, vm)
	defer log.Close()
	y.typeLine(vm, strings.Join(commands, "\n"))
	said, left := make([]string, len(commands)), len(commands)
	for lines := bufio.NewScanner(log); left > 0 && lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		for i, command := range commands {
			if at := strings.Index(line, "berth-guest: error: "+command); at >= 0 {
				y.T.Fatalf("the guest says %s", line[at:])
			}
			if _, rest, ok := strings.Cut(line, "berth-guest: "+command+": "); ok {
				if old[command]--; old[command] == -1 {
					said[i] = rest
					left--
				}
			}
		}
	}
	if left > 0 {
		y.T.Fatalf("the guest did not answer all of %q: %q", commands, said)
	}
	return said
}

// migrate asks for a migration, waits for its end, and then for the machine to be in one launcher alone.
func (y *yard) migrate(vm *kubevirt.VirtualMachine, name string) *kubevirt.VirtualMachineInstanceMigration {
	y.T.Helper()
	m := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name},
		Spec: kubevirt.MigrationSpec{VMIName: vm.Name}}
	if err := y.kube.Create(y.Context(), m); err != nil {
		y.T.Fatal(err)
	}
	y.Wait("migration "+name+" to end", moving, func(ctx context.Context) (bool, string) {
		if err := y.kube.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return false, err.Error()
		}
		return m.Ended(), fmt.Sprintf("%s: %s", m.Status.Phase, migrationSays(m))
	})
	y.T.Logf("migration %s: %s: %s", name, m.Status.Phase, migrationSays(m))
	y.oneLauncher(vm)
	return m
}

// oneLauncher waits until the launcher that a guest has left is gone.
func (y *yard) oneLauncher(vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	y.Wait("one launcher to be left", patience, func(ctx context.Context) (bool, string) {
		_, launchers := y.pods(ctx, vm)
		return len(launchers) == 1, fmt.Sprintf("%d launchers", len(launchers))
	})
}

func migrationSays(m *kubevirt.VirtualMachineInstanceMigration) string {
	for _, c := range m.Status.Conditions {
		if c.Type == "Ready" {
			return c.Message
		}
	}
	return ""
}

// moves moves a machine and waits until its instance says that it is on another node.
func (y *yard) moves(vm *kubevirt.VirtualMachine, name string) {
	y.T.Helper()
	from := y.instance(y.Context(), vm).Status.NodeName
	m := y.migrate(vm, name)
	if m.Status.Phase != kubevirt.MigrationSucceeded {
		y.T.Fatalf("migration %s: %s", m.Status.Phase, migrationSays(m))
	}
	y.Wait("the instance to say where it is", patience, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		s := i.Status.MigrationState
		return i.Status.NodeName != from && s != nil && s.Completed && !s.Failed && s.SourceNode == from && s.TargetNode == i.Status.NodeName &&
			s.MigrationUID == m.UID && len(i.Status.ActivePods) == 1, fmt.Sprintf("%+v", i.Status)
	})
	_, launchers := y.pods(y.Context(), vm)
	if at := y.instance(y.Context(), vm).Status.NodeName; launchers[0].Spec.NodeName != at {
		y.T.Errorf("the launcher is on node %s, and the instance says %s", launchers[0].Spec.NodeName, at)
	}
}

// pattern has the guest write to its disks, or compare what it wrote.
func (y *yard) pattern(vm *kubevirt.VirtualMachine, verb string, seed int, disks ...string) {
	y.T.Helper()
	y.answers(vm, patterns(verb, seed, disks...)...)
}

// patterns are the commands of that. One that compares is answered only if it is the same.
func patterns(verb string, seed int, disks ...string) []string {
	var commands []string
	for _, disk := range disks {
		commands = append(commands, fmt.Sprintf("%s serial=%s %d %d %d", verb, disk, 1<<20, 4<<20, seed))
	}
	return commands
}

// rounds is how often a guest moves from node to node in one test: there and back, or as often as E2E_MOVES says.
func rounds(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("E2E_MOVES"), "2"))
	if err != nil || n < 1 {
		t.Fatalf("E2E_MOVES: %v", os.Getenv("E2E_MOVES"))
	}
	return n
}

// sharedVariable names a directory that this machine and all nodes have in common. Of a kubebox cluster that is its state directory.
const sharedVariable = "E2E_SHARED_DIR"

// sharedClaim makes a claim that all nodes can have at once.
func (y *yard) sharedClaim(name string) {
	y.T.Helper()
	here, there := filepath.Dir(framework.Kubeconfig(y.T)), "/run/kubebox"
	if dir := os.Getenv(sharedVariable); dir != "" {
		here, there = dir, dir
	}
	dir := filepath.Join(here, y.Namespace)
	err := os.Mkdir(dir, 0o777)
	if err == nil {
		err = os.Chmod(dir, 0o777) // whatever the umask is: the guest's user is not ours
	}
	if err != nil {
		y.T.Fatal(err)
	}
	y.T.Cleanup(func() { _ = os.RemoveAll(dir) })
	y.staticClaimOf(name, corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: filepath.Join(there, y.Namespace), Type: new(corev1.HostPathDirectory)}}, corev1.ReadWriteMany)
}

// TestMigration: a running guest goes to another node and back with a claim that both nodes have, its network disk, its overlay over a container disk, an empty
// disk and its cloud-init disk, and nobody has to start it again. A drain leaves it to others, as its evictionStrategy says.
func TestMigration(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.nbd()
	export, _, err := s.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.secret("certificates", map[string]string{"ca.crt": string(s.Certificates.CA),
		"tls.crt": string(s.Certificates.Client.Certificate), "tls.key": string(s.Certificates.Client.Key)})
	y.sharedClaim("shared")
	vm := y.mover("mover",
		kubevirt.Volume{Name: "shared", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "shared"}}},
		kubevirt.Volume{Name: "net", VolumeSource: kubevirt.VolumeSource{NBD: &kubevirt.NBDSource{
			Host: kubevirt.NetworkHost{Name: s.Address, Port: new(intstr.FromInt(s.Port))}, Export: export,
			TLS: &kubevirt.NBDTLS{SecretRef: corev1.LocalObjectReference{Name: "certificates"}}}}},
		kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{
			Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}}},
		kubevirt.Volume{Name: "empty", VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}},
		kubevirt.Volume{Name: "init", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitSource{UserData: "#cloud-config\n"}}})
	vm.Spec.Template.Spec.EvictionStrategy = new(kubevirt.EvictExternal)
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	made := y.answer(vm, "sha256 serial=init")
	c := y.churns(vm, "net", "root", "empty", "shared")
	for i := range rounds(t) {
		c.moves(fmt.Sprintf("move-%d", i), func() { y.moves(vm, fmt.Sprintf("move-%d", i)) })
		if got := y.answer(vm, "sha256 serial=init"); got != made {
			t.Errorf("its cloud-init disk is another")
		}
	}
	if in, all := y.serving(vm, "shared"), y.claimNames(); in != "shared" || slices.ContainsFunc(all, func(n string) bool { return strings.HasPrefix(n, "move-") }) {
		t.Errorf("the disk that both nodes have is in claim %s; claims are %v", in, all)
	}
	y.nothingOfMoves(vm)
	y.leftToOthers(vm)
	y.answer(vm, "disks")
}

// nothingOfMoves: neither keys nor claims of migrations are left.
func (y *yard) nothingOfMoves(vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	secrets, err := y.Client.CoreV1().Secrets(y.Namespace).List(y.Context(), metav1.ListOptions{})
	if err != nil {
		y.T.Fatal(err)
	}
	for _, s := range secrets.Items {
		if strings.HasSuffix(s.Name, "-move") {
			y.T.Errorf("of the migrations of %s Secret %s is left", vm.Name, s.Name)
		}
	}
}
