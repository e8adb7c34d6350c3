//go:build peers && e2e

package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

const (
	veleroDir       = "../../../bin/velero" // `make velero` builds the programs there
	veleroNamespace = "velero"
	bucket          = "backups"
	s3Key           = "velero"
	s3Secret        = "velero-secret"
)

// velero is Velero's own server and client with its plugin for S3, and an S3 server, all on this machine and unchanged.
type velero struct {
	*framework.Env
	log string // of the server
}

// installVelero runs Velero for the cluster until the test ends.
func installVelero(env *framework.Env) *velero {
	env.T.Helper()
	v := &velero{Env: env, log: filepath.Join(env.T.TempDir(), "velero.log")}
	server := v.serveBucket()
	v.client("install", "--crds-only")
	v.kubectl(fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
# Velero's server asks it how its helpers are to run; the server of this test runs beside the cluster
apiVersion: apps/v1
kind: Deployment
metadata: {name: velero, namespace: %[1]s}
spec:
  replicas: 0
  selector: {matchLabels: {component: velero}}
  template:
    metadata: {labels: {component: velero}}
    spec: {containers: [{name: velero, image: velero}]}
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: %[1]s}
stringData:
  cloud: "[default]\naws_access_key_id=%[2]s\naws_secret_access_key=%[3]s\n"
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: default, namespace: %[1]s}
spec:
  provider: aws
  default: true
  credential: {name: login, key: cloud}
  objectStorage: {bucket: %[4]s}
  config: {region: us-east-1, s3ForcePathStyle: "true", s3Url: %[5]q}
`, veleroNamespace, s3Key, s3Secret, bucket, server), "apply", "-f", "-")
	v.start(v.log, "velero", "server", "--features=EnableCSI", "--plugin-dir", filepath.Join(veleroDir, "plugins"), "--metrics-address=127.0.0.1:0",
		"--profiler-address=127.0.0.1:0", "--store-validation-frequency=10s", "--item-operation-sync-frequency=2s", "--namespace", veleroNamespace,
		"--kubeconfig", framework.Kubeconfig(env.T))
	env.T.Cleanup((&velero{Env: env.Outliving(), log: v.log}).remove) // the server is still there: it removes the snapshots of backups
	v.waitPhase("backupstoragelocation", "default", "Available")
	return v
}

// start runs a program until the test ends.
func (v *velero) start(log, program string, args ...string) {
	v.T.Helper()
	out, err := os.Create(log)
	if err != nil {
		v.T.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(v.Context()), filepath.Join(veleroDir, program), args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		v.T.Fatalf("%v (make velero builds it)", err)
	}
	v.T.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		_ = out.Close()
	})
}

// serveBucket runs the S3 server with an empty bucket, and returns its address.
func (v *velero) serveBucket() string {
	v.T.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		v.T.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	v.start(filepath.Join(v.T.TempDir(), "s3.log"), "versitygw", "--access", s3Key, "--secret", s3Secret, "--port", address, "posix", v.T.TempDir())
	v.Wait("a bucket", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		out, err := exec.CommandContext(ctx, "curl", "-sS", "--fail-with-body", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", s3Key+":"+s3Secret, "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
			"-X", "PUT", "http://"+address+"/"+bucket).CombinedOutput()
		return err == nil, string(out)
	})
	return "http://" + address
}

// remove takes Velero off the cluster again.
func (v *velero) remove() {
	if v.T.Failed() {
		text, _ := os.ReadFile(v.log)
		lines := strings.Split(string(text), "\n")
		var odd []string
		for _, l := range lines {
			if strings.Contains(l, "level=error") || strings.Contains(l, "level=warning") {
				odd = append(odd, l)
			}
		}
		v.T.Logf("Velero's server says, at last:\n%s\nand of what went wrong:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"), strings.Join(odd[max(0, len(odd)-60):], "\n"))
	}
	v.client("backup", "delete", "--all", "--confirm")
	v.kubectl("", "wait", "--for=delete", "backup", "--all", "--timeout=2m")
	v.kubectl("", "delete", "--ignore-not-found", "--timeout=2m", "namespace", veleroNamespace)
	v.kubectl("", "delete", "--ignore-not-found", "--timeout=2m", "crd", "-l", "component=velero")
}

func (v *velero) kubectl(stdin string, args ...string) string {
	v.T.Helper()
	cmd := exec.CommandContext(v.Context(), "../../../bin/kubectl", append([]string{"--kubeconfig", framework.Kubeconfig(v.T), "-n", veleroNamespace}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		v.T.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// client runs velero as a person does.
func (v *velero) client(args ...string) {
	v.T.Helper()
	cmd := exec.CommandContext(v.Context(), filepath.Join(veleroDir, "velero"), append(args, "--kubeconfig", framework.Kubeconfig(v.T), "--namespace", veleroNamespace)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		v.T.Fatalf("velero %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
}

// waitPhase waits until an object of Velero's has this phase. Another one that it ends in fails the test at once.
func (v *velero) waitPhase(kind, name, want string) {
	v.T.Helper()
	v.Wait(kind+" "+name+" to be "+want, fixture.BootPatience, func(context.Context) (bool, string) {
		got := v.kubectl("", "get", kind, name, "-o", "jsonpath={.status.phase}")
		if strings.Contains(got, "Failed") {
			v.T.Fatalf("%s %s is %s: %s", kind, name, got, v.kubectl("", "get", kind, name, "-o", "yaml"))
		}
		return got == want, got
	})
}

// imported is a machine whose one disk, named data, is imported into a claim of a volumeClaimTemplate.
func imported(y *fixture.Machines, name string) *kubevirt.VirtualMachine {
	class, group := fixture.ClassDisk, cdiv1.SchemeGroupVersion.Group
	vm := y.MovableMachine(name, kubevirt.Volume{Name: "data", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "data"}}})
	vm.Spec.VolumeClaimTemplates = []kubevirt.VolumeClaimTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, Resources: fixture.StorageRequest("64Mi"),
		DataSourceRef: &corev1.TypedObjectReference{APIGroup: &group, Kind: cdiv1.VolumeImportSourceRef, Name: "image"}}}}
	return vm
}

// wrapped is a machine without a guest whose one disk is imported by a dataVolumeTemplate.
func wrapped(y *fixture.Machines, name, url string) *kubevirt.VirtualMachine {
	class := fixture.ClassDisk
	vm := y.TinyMachine(name)
	vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: name + "-data"}, Spec: cdiv1.DataVolumeSpec{
		Source:  &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}},
		Storage: &cdiv1.StorageSpec{StorageClassName: &class, Resources: fixture.StorageRequest("64Mi")},
	}}}
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "data", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: name + "-data"}}}}
	return vm
}

// TestVelero: Velero backs up a namespace with a machine that runs and has moved to another node, and one that is stopped. The backup is complete, the guest
// that ran was frozen for its moment, and goes on afterwards. The backup is restored into another namespace, and into its own after the machines were
// deleted: they run with the data of the backup's moment, and nothing is imported again.
func TestVelero(t *testing.T) {
	y, other, images := fixture.NewMachines(t), fixture.NewMachines(t), fixture.NewVolumes(t)
	url := images.Web.URL + "/disk.img"
	v := installVelero(y.Env)
	b := &fixture.Volumes{Env: y.Env, Kube: y.Kube}
	b.CreateObject(&cdiv1.VolumeImportSource{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "image"},
		Spec: cdiv1.VolumeImportSourceSpec{Source: &cdiv1.ImportSourceType{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}}}})
	web, off := imported(y, "web"), wrapped(y, "off", url)
	y.CreateMachine(web)
	y.CreateMachine(off)
	y.WaitStatus(off, kubevirt.StatusRunning, fixture.BootPatience)
	y.SetRunStrategy(off, kubevirt.RunHalted)
	y.WaitStatus(off, kubevirt.StatusStopped, fixture.BootPatience)
	y.WaitStatus(web, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(web, "berth-guest: ready")
	if m := y.Migrate(web, "before"); m.Status.Phase != kubevirt.MigrationSucceeded {
		t.Fatalf("migration %s: %s", m.Status.Phase, fixture.MigrationSays(m))
	}
	y.RunPattern(web, "write", 8, "data")

	v.client("backup", "create", y.Namespace, "--include-namespaces", y.Namespace)
	v.waitPhase("backup", y.Namespace, "Completed")
	y.GuestSays(web, "frozen")
	y.GuestSays(web, "thawed")
	y.RunPattern(web, "write", 9, "data") // which is not in the backup

	asked := images.Web.Requests()
	v.restore(y.Namespace, other.Namespace, "--namespace-mappings", y.Namespace+":"+other.Namespace)
	y.DeleteMachines()
	y.Wait("the claims to be gone", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		claims, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(claims.Items) == 0, fmt.Sprint(len(claims.Items), " claims, ", err)
	})
	v.restore(y.Namespace, "again-"+y.Namespace)
	for _, at := range []*fixture.Machines{other, y} {
		asItWas(at)
	}
	if now := images.Web.Requests(); now != asked {
		t.Errorf("images were asked for %d times after the restores", now-asked)
	}
}

// restore has a backup restored, without the pods of its machines: machines make their own.
func (v *velero) restore(backup, name string, args ...string) {
	v.T.Helper()
	v.client(append([]string{"restore", "create", name, "--from-backup", backup, "--selector", "kubevirt.io notin (virt-launcher)"}, args...)...)
	v.waitPhase("restore", name, "Completed")
}

// asItWas compares the machines of a namespace with those of the backup.
func asItWas(y *fixture.Machines) {
	y.T.Helper()
	named := func(name string) *kubevirt.VirtualMachine {
		vm := &kubevirt.VirtualMachine{}
		if err := y.Kube.Get(y.Context(), client.ObjectKey{Namespace: y.Namespace, Name: name}, vm); err != nil {
			y.T.Fatal(err)
		}
		return vm
	}
	web, off := named("web"), named("off")
	y.WaitStatus(web, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(web, "berth-guest: ready")
	y.RunPattern(web, "verify", 8, "data")
	y.WaitStatus(off, kubevirt.StatusStopped, fixture.Patience)
	y.SetRunStrategy(off, kubevirt.RunAlways)
	y.WaitStatus(off, kubevirt.StatusRunning, fixture.BootPatience)
	y.SetRunStrategy(off, kubevirt.RunHalted)
	y.WaitStatus(off, kubevirt.StatusStopped, fixture.BootPatience)
	b := &fixture.Volumes{Env: y.Env, Kube: y.Kube}
	b.BeginsWith("off-data", fixture.DiskImage(24))
	for claim, owner := range map[string]client.Object{"web-data": web, "off-data": b.ReadVolume("off-data")} {
		if c := b.ReadClaim(claim); !metav1.IsControlledBy(c, owner) {
			y.T.Errorf("claim %s belongs to %v", claim, c.OwnerReferences)
		}
	}
	if back := y.Kubectl("get", "vmim", "-l", "velero.io/restore-name", "-o", "name"); back != "" { // one that was not deleted is still there
		y.T.Errorf("migrations came back: %s", back)
	}
}
