//go:build apiserver

package apiserver

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/encode"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/restore"
)

// backedUpMachine is a machine as a manifest has it, with a probe of its guest.
const backedUpMachine = `{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "web", "namespace": "old", "labels": {"app": "web"}}, "spec": {"runStrategy": "Always",
  "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"readinessProbe": {"guestAgentPing": {}}, "networks": [{"name": "default", "pod": {}}],
  "domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "masquerade": {}}]}},
  "volumes": [{"name": "root", "dataVolume": {"name": "web-root"}}]}}}}`

// setOfBackups serves a set with one backup of the machine.
func setOfBackups(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	disk := bytes.Repeat([]byte("berth"), 1<<20)[:4<<20]
	must(t, os.Mkdir(filepath.Join(dir, "web"), 0o755))
	_, err := backup.Write(t.Context(), filepath.Join(dir, "web"), backup.Plan{Checkpoint: "b0", Created: time.Unix(1_700_000_000, 0), Machine: []byte(backedUpMachine),
		Disks: []backup.Source{{Name: "root", Disk: encode.Disk{ReaderAt: bytes.NewReader(disk), Size: int64(len(disk)),
			Data: func(_ context.Context, from, to int64) ([][2]int64, error) { return [][2]int64{{from, to - from}}, nil }}}}})
	must(t, err)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	return server.URL + "/web"
}

// drillAccount makes what examples/restore-drill.yaml gives the account of a CronJob, in a namespace, and returns a client with its rights.
func drillAccount(t *testing.T, namespace string) *kube.Client {
	t.Helper()
	root, err := moduleRoot()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "examples", "restore-drill.yaml"))
	must(t, err)
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		u := &unstructured.Unstructured{}
		must(t, yaml.UnmarshalStrict([]byte(doc), &u.Object))
		u.SetNamespace(namespace)
		switch u.GetKind() {
		case "CronJob":
			continue
		case "RoleBinding":
			must(t, unstructured.SetNestedSlice(u.Object, []any{map[string]any{"kind": "ServiceAccount", "name": "restore-drill", "namespace": namespace}}, "subjects"))
		}
		create(t, admin, u)
	}
	return virtctlAs(t, as(namespace+":restore-drill"), namespace)
}

func virtctlAs(t *testing.T, config *rest.Config, namespace string) *kube.Client {
	t.Helper()
	c, err := kube.New(rest.CopyConfig(config), namespace)
	must(t, err)
	return c
}

func classFor(t *testing.T, name string) {
	t.Helper()
	create(t, admin, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "rancher.io/local-path"})
}

// runMachines does what the cluster would with the machines of a namespace: their instances run and are ready, their disks are full, and what belongs to
// one that is gone goes.
func runMachines(ctx context.Context, namespace string) error {
	in := client.InNamespace(namespace)
	var vms kubevirt.VirtualMachineList
	var volumes cdiv1.DataVolumeList
	if err := admin.List(ctx, &vms, in); err != nil {
		return err
	}
	if err := admin.List(ctx, &volumes, in); err != nil {
		return err
	}
	there := map[string]bool{}
	for i := range vms.Items {
		vm := &vms.Items[i]
		there[string(vm.UID)] = true
		if err := runMachine(ctx, vm, volumes.Items); err != nil {
			return err
		}
	}
	for i := range volumes.Items {
		if owner := metav1.GetControllerOf(&volumes.Items[i]); owner != nil && !there[string(owner.UID)] {
			if err := client.IgnoreNotFound(admin.Delete(ctx, &volumes.Items[i])); err != nil {
				return err
			}
		}
	}
	sources := &unstructured.UnstructuredList{}
	sources.SetAPIVersion("berth.dev/v1alpha1")
	sources.SetKind("VolumeBackupSourceList")
	if err := admin.List(ctx, sources, in); err != nil {
		return err
	}
	for i := range sources.Items {
		if owners := sources.Items[i].GetOwnerReferences(); len(owners) == 1 && !there[string(owners[0].UID)] {
			if err := client.IgnoreNotFound(admin.Delete(ctx, &sources.Items[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

func runMachine(ctx context.Context, vm *kubevirt.VirtualMachine, volumes []cdiv1.DataVolume) error {
	owner := *metav1.NewControllerRef(vm, kubevirt.GroupVersion.WithKind("VirtualMachine"))
	for _, d := range vm.Spec.DataVolumeTemplates {
		made := &cdiv1.DataVolume{ObjectMeta: d.ObjectMeta, Spec: d.Spec}
		made.Namespace, made.OwnerReferences = vm.Namespace, []metav1.OwnerReference{owner}
		if err := client.IgnoreAlreadyExists(admin.Create(ctx, made)); err != nil {
			return err
		}
	}
	for i := range volumes {
		if d := &volumes[i]; metav1.IsControlledBy(d, vm) && d.Status.Phase != cdiv1.Succeeded {
			if err := admin.Status().Patch(ctx, d, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Succeeded"}}`))); err != nil {
				return err
			}
		}
	}
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: *vm.Spec.Template.Spec.DeepCopy()}
	for n := range i.Spec.Volumes {
		i.Spec.Volumes[n].BootEarly = false
	}
	if err := client.IgnoreAlreadyExists(admin.Create(ctx, i)); err != nil {
		return err
	}
	return client.IgnoreNotFound(admin.Status().Patch(ctx, i, client.RawPatch("application/merge-patch+json",
		[]byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`))))
}

// runControllers runs them until the test ends.
func runControllers(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := runMachines(ctx, namespace); err != nil && ctx.Err() == nil {
				t.Errorf("the test's controllers: %v", err)
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// made lists what a restore may have made in a namespace.
func made(t *testing.T, namespace string) []string {
	t.Helper()
	var out []string
	for kind, version := range map[string]string{"VirtualMachine": "kubevirt.io/v1", "DataVolume": "cdi.kubevirt.io/v1beta1", "VolumeBackupSource": "berth.dev/v1alpha1",
		"VirtualMachineExport": "export.kubevirt.io/v1beta1", "Secret": "v1", "PersistentVolumeClaim": "v1"} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(version)
		list.SetKind(kind + "List")
		must(t, admin.List(t.Context(), list, client.InNamespace(namespace)))
		for i := range list.Items {
			out = append(out, kind+" "+list.Items[i].GetName())
		}
	}
	return out
}

// TestDrillRights: with the rights of the example, and no other, an account carries out a drill, removes what an earlier one left, and leaves nothing. A machine
// that has the label and is none of a drill's stays.
func TestDrillRights(t *testing.T) {
	installRights(t)
	space(t, "drills")
	classFor(t, "for-drills")
	c, from := drillAccount(t, "drills"), setOfBackups(t)
	runControllers(t, "drills")
	left := object(`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: drill-web-older, namespace: drills, labels: {berth.dev/restore-drill: drill-web-older},
		annotations: {berth.dev/restore-drill-of: web}}, spec: {runStrategy: Halted, template: {spec: {domain: {memory: {guest: 64Mi}, devices: {}}}}}}`)
	create(t, admin, left)
	stays := left.DeepCopy()
	stays.SetName("clone-of-a-drill")
	stays.SetResourceVersion("")
	stays.SetUID("")
	create(t, admin, stays)

	r, err := restore.Verify(t.Context(), c, restore.Options{Name: "web", From: from, Class: "for-drills"}, restore.Drill{Deadline: time.Minute}, io.Discard)
	must(t, err)
	if !r.Good() || r.Checkpoint != "b0" || r.WaitedFor != "the readiness probe" || r.UpAfter == nil || r.FullAfter == nil {
		t.Errorf("the drill: %+v", r)
	}
	if now := made(t, "drills"); len(now) != 1 || now[0] != "VirtualMachine clone-of-a-drill" {
		t.Errorf("left is %q", now)
	}
	if _, err := c.Core.CoreV1().Secrets("drills").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the account may read Secrets")
	}
	if err := kube.Machines.Update(t.Context(), c, &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "clone-of-a-drill"}}); err == nil {
		t.Error("the account may change machines")
	}
}

// TestDrillInterrupted: a drill that is interrupted while it waits removes its copy.
func TestDrillInterrupted(t *testing.T) {
	installRights(t)
	space(t, "interrupted")
	classFor(t, "for-interrupted")
	from := setOfBackups(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan *restore.Report, 1)
	go func() {
		defer close(ended)
		r, err := restore.Verify(ctx, virtctlAs(t, baseCfg, "interrupted"), restore.Options{Name: "web", From: from, Class: "for-interrupted"}, restore.Drill{Deadline: time.Hour}, io.Discard)
		if err != nil {
			t.Errorf("the drill: %v", err)
		}
		ended <- r
	}()
	eventually(t, "the copy", func() (bool, error) {
		var all kubevirt.VirtualMachineList
		err := admin.List(t.Context(), &all, client.InNamespace("interrupted"), client.HasLabels{names.Drill})
		return len(all.Items) == 1, err
	})
	interrupt()
	runControllers(t, "interrupted") // which also remove what belongs to a machine that is gone
	if r := <-ended; r == nil || r.Result != "Interrupted" || !r.Removed {
		t.Errorf("%+v", r)
	}
	if now := made(t, "interrupted"); len(now) != 0 {
		t.Errorf("left is %q", now)
	}
}

// TestRestoreRefused: a restore that the cluster would not take is refused, with the reason, before anything is made.
func TestRestoreRefused(t *testing.T) {
	installRights(t)
	space(t, "refuses")
	classFor(t, "for-refusals")
	from := setOfBackups(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "refuses", Name: "tight"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("1Mi")}}}
	create(t, admin, quota)
	quota.Status.Hard = quota.Spec.Hard // as the quota controller says it
	must(t, admin.Status().Update(t.Context(), quota))
	for _, right := range []string{"virtualmachines", "datavolumes", "volumebackupsources"} {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "refuses", Name: "but-" + right}}
		for group, resource := range map[string]string{"kubevirt.io": "virtualmachines", "cdi.kubevirt.io": "datavolumes", "berth.dev": "volumebackupsources"} {
			if resource != right {
				role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"*"}})
			}
		}
		create(t, admin, role)
		create(t, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "refuses", Name: "but-" + right},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "but-" + right},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "refuses", Name: "but-" + right}}})
	}
	for name, c := range map[string]struct {
		account, class, says string
	}{
		"no right to make machines":    {"refuses:but-virtualmachines", "for-refusals", "you may not create virtualmachines in namespace refuses"},
		"no right to make DataVolumes": {"refuses:but-datavolumes", "for-refusals", "you may not create datavolumes"},
		"no right to make the sources": {"refuses:but-volumebackupsources", "for-refusals", "you may not create volumebackupsources"},
		"no right at all":              {"refuses:nobody", "for-refusals", "you may not create virtualmachines, datavolumes, volumebackupsources"},
		"a quota that is too small":    {"", "for-refusals", "quota tight allows 1Mi of requests.storage"},
		"a class that is gone":         {"", "gone", "there is no storage class gone"},
	} {
		t.Run(name, func(t *testing.T) {
			config := baseCfg
			if c.account != "" {
				config = as(c.account)
			}
			cluster := virtctlAs(t, config, "refuses")
			err := restore.Run(t.Context(), cluster, restore.Options{Name: "web", From: from, Class: c.class}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "nothing was made: ") {
				t.Errorf("a restore: %v, want %q", err, c.says)
			}
			if _, err := restore.Verify(t.Context(), cluster, restore.Options{Name: "web", From: from, Class: c.class}, restore.Drill{Deadline: time.Minute}, io.Discard); err == nil {
				t.Error("a drill is not refused")
			}
			if now := made(t, "refuses"); len(now) != 0 {
				t.Errorf("it made %q", now)
			}
		})
	}
}
