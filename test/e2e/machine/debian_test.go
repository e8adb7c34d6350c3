//go:build e2e

package machine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	debianguest "github.com/berth-vm/berth/images/debian"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// debianBoot is how long Debian may take to start: systemd and cloud-init under emulation, on a machine that other tests share.
const debianBoot = 15 * time.Minute

// TestDebian: an ordinary Debian, in which nothing is ours, is imported and booted; cloud-init sets its name, its user and its disk's size, ssh
// and the agent's verbs work, a snapshot freezes it, udev sees a disk that is added, and it moves while it writes.
func TestDebian(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	v := fixture.NewVirtctl(t, y.Env)
	key := sshKey(t)
	vm := debian(y, "real", key)
	agentKey := sshKey(t)
	byAgent(y, vm, agentKey, key)
	y.CreateMachine(vm)
	y.CreateBlankVolume("added", "localdisk")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSaysWithin(debianBoot, vm, "cloud-init has finished on real", 1)

	t.Log("the agent answers")
	y.Wait("the agent to name the system", fixture.Patience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		return i != nil && i.Status.GuestOSInfo != nil && i.Status.GuestOSInfo.ID == "debian", fmt.Sprintf("%+v", i)
	})
	if out := v.Must("fslist", "real"); !strings.Contains(out, "ext4") {
		t.Errorf("the agent lists %s", out)
	}

	t.Log("a user logs in, and finds the name and the whole disk")
	login := func(key, command string) string {
		t.Helper()
		return strings.TrimSpace(v.Must("ssh", "admin@vm/real", "-i", key, "--known-hosts", filepath.Join(t.TempDir(), "hosts"), "-t", "-o StrictHostKeyChecking=no",
			"-t", "-o LogLevel=ERROR", "-c", command))
	}
	run := func(command string) string { t.Helper(); return login(key, command) }
	if name := run("hostname"); name != "real" {
		t.Errorf("the guest is called %q", name)
	}
	if blocks, err := strconv.Atoi(run("stat -f -c %b /")); err != nil || blocks*4096 < debianguest.RootSize*3/2 {
		t.Errorf("the root filesystem did not grow: it has %d blocks: %v", blocks, err)
	}
	started := run("cat /proc/sys/kernel/random/boot_id")

	t.Log("the agent has set a key and a password")
	y.Kubectl("wait", "vmi/real", "--for=condition=AccessCredentialsSynchronized", "--timeout=120s")
	if name := login(agentKey, "whoami"); name != "admin" {
		t.Errorf("with the key that the agent set %q logs in", name)
	}
	if shadow := run("sudo getent shadow admin"); !strings.HasPrefix(shadow, "admin:$") {
		t.Errorf("the password of admin is %q", shadow)
	}

	t.Log("a snapshot freezes it")
	s := y.SnapshotMachine("of-real", "real")
	if want := []snapshotv1.Indication{snapshotv1.Online, snapshotv1.GuestAgent}; !slices.Equal(s.Status.Indications, want) {
		t.Errorf("indications are %v", s.Status.Indications)
	}

	t.Log("udev sees a disk that is added")
	v.Must("addvolume", "real", "--volume-name=added", "--serial=ADDED")
	y.WaitPlugged(vm, "added")
	y.Wait("the guest to have the disk", fixture.Patience, func(context.Context) (bool, string) {
		out := run("udevadm settle; ls /dev/disk/by-id")
		return strings.Contains(out, "ADDED"), out
	})

	t.Log("it moves while it writes")
	run("nohup sh -c 'i=0; while :; do i=$((i+1)); echo $i >> numbers; sync numbers; sleep 0.1; done' >/dev/null 2>&1 &")
	y.Migrate(vm, "away")
	before := run("tail -n 1 numbers")
	y.Wait("the guest to go on writing", fixture.Patience, func(context.Context) (bool, string) {
		now := run("tail -n 1 numbers")
		return now != before, now
	})
	if same := run("n=$(tail -n 1 numbers); seq $n > wanted; head -n $n numbers | cmp - wanted 2>&1 && echo same"); same != "same" {
		t.Errorf("numbers are missing: %s", same)
	}
	if now := run("cat /proc/sys/kernel/random/boot_id"); now != started {
		t.Errorf("the guest was started again: %s, was %s", now, started)
	}
}

// debianDir has what hack/images makes of Debian.
const debianDir = "../../../bin/images/debian"

// makeDebian makes that if it is not there.
func makeDebian(y *fixture.Machines) {
	y.T.Helper()
	made := exec.CommandContext(y.Context(), "go", "run", "./hack/images", "debian")
	made.Dir = "../../.."
	if out, err := made.CombinedOutput(); err != nil {
		y.T.Fatalf("make the Debian guest: %v\n%s", err, out)
	}
}

// TestDebianContainer: an ordinary container image of Debian, with its libc, its shell and a service that changes its user, runs as a machine: the shell's script does its
// work, the service serves, and ends in order when the machine is stopped.
func TestDebianContainer(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	b := &fixture.Volumes{Env: y.Env, Kube: y.Kube}
	makeDebian(y)
	layer, err := os.ReadFile(filepath.Join(debianDir, debianguest.Layer))
	b.NoError(err)
	script := `. /etc/os-release; echo "says: $ID, $(id -un) in $(pwd), $(ls /etc/nginx | wc -l) files, $(seq 100 | sort -r | awk '{ n += $1 } END { print n }')"
trap 'nginx -s quit' TERM
echo "$GREETING" > /var/www/html/index.html
nginx
until [ -n "$worker" ]; do worker=$(grep -l 'nginx: worke[r]' /proc/[0-9]*/cmdline 2>/dev/null | head -n 1); done
echo "says: a worker of $(stat -c %U ${worker%/cmdline})"
while [ -e /run/nginx.pid ]; do sleep 1 & wait $!; done
echo "says: it ended in order"`
	ref, _ := b.PushLayers(v1.Config{Entrypoint: []string{"/bin/bash", "-c"}, Cmd: []string{script}, WorkingDir: "/srv", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GREETING=a page of Debian's"}}, "amd64", layer)
	vm := y.ImageMachine("web", ref)
	spec := &vm.Spec.Template.Spec
	spec.Volumes[0].ContainerImage.Args = nil
	spec.TerminationGracePeriodSeconds = new(int64(60))
	spec.Domain.Memory.Guest = new(resource.MustParse("256Mi"))
	spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", Ports: []kubevirt.Port{{Port: 80}}}}
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "says: debian, root in /srv, ")
	y.GuestSays(vm, " files, 5050")
	y.GuestSays(vm, "says: a worker of www-data")
	page := "http://" + y.LauncherOf(vm).Status.PodIP
	if said := y.Run(framework.Pod{Name: "client", Script: fmt.Sprintf("until wget -qO- %s/; do sleep 1; done", page)}); !strings.Contains(said, "a page of Debian's") {
		t.Errorf("its page is %q", said)
	}
	log := y.Console(y.Context(), vm)
	defer log.Close()
	y.SetRunStrategy(vm, kubevirt.RunHalted)
	said, err := io.ReadAll(log)
	b.NoError(err)
	if !strings.Contains(string(said), "says: it ended in order") {
		t.Errorf("its service did not end in order: %.4000s", said)
	}
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
}

// debian is a machine with the Debian guest and a user that has the key.
func debian(y *fixture.Machines, name, key string) *kubevirt.VirtualMachine {
	y.T.Helper()
	makeDebian(y)
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		y.T.Fatal(err)
	}
	vm := y.TinyMachine(name, "localdisk")
	disk := &vm.Spec.DataVolumeTemplates[0].Spec
	disk.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: y.Serve(http.FileServer(http.Dir(debianDir))) + "/" + debianguest.QCOW2}}
	disk.Storage.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	spec := &vm.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = new(int64(30))
	spec.Domain.Memory.Guest = new(resource.MustParse("512Mi"))
	spec.Volumes = append(spec.Volumes, kubevirt.Volume{Name: "seed", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitSource{
		UserData: fmt.Sprintf(`#cloud-config
hostname: %s
users:
- {name: admin, sudo: "ALL=(ALL) NOPASSWD:ALL", shell: /bin/bash, ssh_authorized_keys: [%q]}
runcmd:
- [sh, -c, "echo cloud-init has finished on $(hostname) > /dev/ttyS0"]
`, name, strings.TrimSpace(string(public)))}}})
	return vm
}

// byAgent has the agent set these keys and a password for admin.
func byAgent(y *fixture.Machines, vm *kubevirt.VirtualMachine, keys ...string) {
	y.T.Helper()
	all := map[string]string{}
	for n, key := range keys {
		public, err := os.ReadFile(key + ".pub")
		if err != nil {
			y.T.Fatal(err)
		}
		all[fmt.Sprint("key-", n)] = string(public)
	}
	source := func(name string, data map[string]string) kubevirt.CredentialSource {
		return kubevirt.CredentialSource{Secret: &kubevirt.CredentialSecret{SecretName: y.ApplySecret(name, data)}}
	}
	vm.Spec.Template.Spec.AccessCredentials = []kubevirt.AccessCredential{
		{SSHPublicKey: &kubevirt.SSHPublicKeyAccess{Source: source("agent-keys", all), PropagationMethod: kubevirt.SSHKeyPropagation{
			QemuGuestAgent: &kubevirt.AgentSSHKeyPropagation{Users: []string{"admin"}}}}},
		{UserPassword: &kubevirt.UserPasswordAccess{Source: source("agent-password", map[string]string{"admin": "not-to-be-guessed"}),
			PropagationMethod: kubevirt.PasswordPropagation{QemuGuestAgent: &kubevirt.CloudInitPropagation{}}}},
	}
}

func sshKey(t *testing.T) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	return key
}
