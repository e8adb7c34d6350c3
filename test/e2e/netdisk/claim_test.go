//go:build e2e

package netdisk

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// vault makes a namespace of the administrator's with a Secret in it. The test's own namespace knows nothing of it.
func vault(y *fixture.Machines, data map[string]string) *corev1.SecretReference {
	y.T.Helper()
	name := y.Namespace + "-vault"
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, obj := range []client.Object{space,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "login"}, StringData: data}} {
		if err := y.Kube.Create(y.T.Context(), obj); err != nil {
			y.T.Fatal(err)
		}
	}
	y.T.Cleanup(func() { _ = y.Kube.Delete(context.Background(), space) })
	return &corev1.SecretReference{Namespace: name, Name: "login"}
}

// unmounted: the launcher's pod names the claim and no container of it has it.
func unmounted(y *fixture.Machines, vm *kubevirt.VirtualMachine, claim string) {
	y.T.Helper()
	_, launchers := y.PodsOf(y.Context(), vm)
	named := false
	for _, v := range launchers[0].Spec.Volumes {
		named = named || v.Name == "root" && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	}
	c := launchers[0].Spec.Containers[0]
	for _, m := range c.VolumeMounts {
		named = named && m.Name != "root"
	}
	if !named || len(c.VolumeDevices) > 0 {
		y.T.Errorf("the pod does not name claim %s without a mount: %+v %+v", claim, c.VolumeMounts, c.VolumeDevices)
	}
}

// TestNetworkDiskClaimISCSI: a guest boots from a claim whose PersistentVolume is a LUN with CHAP, without a mount. Without the
// administrator's two words it does not: the annotation, and the right to the one Secret. The claim is protected, and the
// same LUN by its address is the same disk.
func TestNetworkDiskClaimISCSI(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	l := y.GuestLUN("erin", "a password of the vault's")
	ref := vault(y, map[string]string{"node.session.auth.username": l.User, "node.session.auth.password": l.Password, "other": "nobody's business"})
	pv := y.CreateStaticClaim("root", y.ISCSIVolume(l, ref), corev1.ReadWriteOnce)
	vm := y.NetworkMachine("claimed", fixture.VolumeOfClaim("root", new(true)))
	y.CreateMachine(vm)
	y.WaitReason(vm, "DirectForbidden", "berth.dev/direct=true")
	y.ConsentToDirect(pv)
	y.WaitReason(vm, "DirectForbidden", "may not read the Secret")
	y.LetControllerRead(ref)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	writes(y, vm, l.File)
	unmounted(y, vm, "root")
	untold(y, vm, l.Password)
	lent(y, vm, "node.session.auth.username", "node.session.auth.password")

	var record accessv1.DiskAccess
	if err := y.Kube.Get(t.Context(), client.ObjectKey{Name: identityOf(y, kubevirt.NetworkSource{ISCSI: y.ISCSISource(l)}).Name()}, &record); err != nil {
		t.Errorf("the LUN has no record: %v", err)
	}
	second := y.NetworkMachine("addressed", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: y.ISCSISource(l)}}})
	y.CreateMachine(second)
	y.WaitReason(second, "DiskInUse", "machine claimed has it write-exclusive")

	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "root"}}
	if err := y.Kube.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	y.Stays("the claim of a running guest", 10*time.Second, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		return err == nil && claim.DeletionTimestamp != nil, fmt.Sprintf("%v %v", claim.Status.Phase, err)
	})
	if err := y.Kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	y.WaitStatus(second, kubevirt.StatusRunning, fixture.BootPatience)
	y.Wait("the claim to go after its machine", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		return client.IgnoreNotFound(err) == nil && err != nil, fmt.Sprint(err)
	})
}

// lent: one Secret of the machine's namespace has these keys of the administrator's Secret and no other, and goes with the run.
func lent(y *fixture.Machines, vm *kubevirt.VirtualMachine, keys ...string) {
	y.T.Helper()
	var list corev1.SecretList
	if err := y.Kube.List(y.T.Context(), &list, client.InNamespace(y.Namespace)); err != nil {
		y.T.Fatal(err)
	}
	found := 0
	for _, s := range list.Items {
		if s.Type != "berth.dev/disk-login" {
			continue
		}
		found++
		if len(s.Data) != len(keys) || metav1.GetControllerOf(&s) == nil || metav1.GetControllerOf(&s).UID != y.InstanceOf(y.T.Context(), vm).UID {
			y.T.Errorf("Secret %s has %d keys and owner %v", s.Name, len(s.Data), s.OwnerReferences)
		}
		for _, k := range keys {
			if len(s.Data[k]) == 0 {
				y.T.Errorf("Secret %s lacks %s", s.Name, k)
			}
		}
	}
	if found != 1 {
		y.T.Errorf("%d logins were copied", found)
	}
}

// TestNetworkDiskClaimCeph: a guest boots from an RBD volume of Kubernetes, and another from one of ceph-csi, neither of which
// the nodes of this cluster could mount. The second says nothing of direct.
func TestNetworkDiskClaimCeph(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	c := y.CephServer()
	ref := vault(y, map[string]string{"key": c.Key, "userID": c.User, "userKey": c.Key, "adminKey": "nobody's business"})
	y.LetControllerRead(ref)
	for _, k := range []struct {
		name   string
		direct *bool
		source func(image string) corev1.PersistentVolumeSource
		more   []string
	}{
		{"intree", new(true), func(image string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{CephMonitors: []string{c.Monitor}, RBDPool: c.Pool,
				RBDImage: image, RadosUser: c.User, SecretRef: ref}}
		}, nil},
		{"csi", nil, func(image string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "rbd.csi.ceph.com", VolumeHandle: image,
				NodeStageSecretRef: ref, VolumeAttributes: map[string]string{"clusterID": "test", "pool": c.Pool, "staticVolume": "true", "imageFeatures": "layering"}}}
		}, []string{"berth.dev/ceph-monitors=" + c.Monitor}},
	} {
		image, err := c.Add(fixture.GuestDir + "/" + testguest.Raw)
		if err != nil {
			t.Fatal(err)
		}
		y.ConsentToDirect(y.CreateStaticClaim(k.name, k.source(image), corev1.ReadWriteOncePod), k.more...)
		vm := y.NetworkMachine(k.name, fixture.VolumeOfClaim(k.name, k.direct))
		y.BootFromNetwork(vm)
		y.GuestWrites(vm)
		unmounted(y, vm, k.name)
		file := filepath.Join(t.TempDir(), "exported")
		if err := c.Export(image, file); err != nil {
			t.Fatal(err)
		}
		written(y, file)
		untold(y, vm, c.Key)
		lent(y, vm, "key", "userID", "userKey")
		y.DeleteMachines()
	}
}

// TestNetworkDiskClaimMounted: without consent a machine that says nothing of direct gets a mount, and so does one that refuses
// it. No kubelet here knows ceph-csi, so that the launcher waits for the mount: that it does is the proof.
func TestNetworkDiskClaimMounted(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	ref := vault(y, map[string]string{"userID": "x", "userKey": "eA=="})
	y.LetControllerRead(ref)
	for name, direct := range map[string]*bool{"unsaid": nil, "refused": new(false)} {
		pv := y.CreateStaticClaim(name, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "rbd.csi.ceph.com", VolumeHandle: name,
			NodeStageSecretRef: ref, VolumeAttributes: map[string]string{"pool": "p", "staticVolume": "true", "monitors": "192.0.2.1"}}}, corev1.ReadWriteOnce)
		if direct != nil {
			y.ConsentToDirect(pv)
		}
		vm := y.NetworkMachine(name, fixture.VolumeOfClaim(name, direct))
		y.CreateMachine(vm)
		y.Wait("a launcher with a device", fixture.Patience, func(ctx context.Context) (bool, string) {
			_, launchers := y.PodsOf(ctx, vm)
			return len(launchers) == 1 && len(launchers[0].Spec.Containers[0].VolumeDevices) == 1, fmt.Sprint(len(launchers))
		})
	}
	var list corev1.SecretList
	if err := y.Kube.List(t.Context(), &list, client.InNamespace(y.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Items {
		if strings.HasPrefix(s.Name, "disk-login-") {
			t.Errorf("a login was copied for a mount: %s", s.Name)
		}
	}
}

// TestNetworkDiskClaimExample applies the example of a directly opened claim, names and addresses replaced.
func TestNetworkDiskClaimExample(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	l := y.GuestLUN("grace", "a password of an example")
	s := y.ISCSIServer()
	replace := strings.NewReplacer("san.example.com:3260", net.JoinHostPort(s.Address, strconv.Itoa(s.Port)), "iqn.2017-01.io.kubevirt:sn.42", l.Target,
		"lun: 2", fmt.Sprintf("lun: %d", l.Number), "username: vm", "username: "+l.User, "change-me-please", l.Password,
		"namespace: storage", "namespace: "+y.Namespace+"-storage", "{name: storage}", "{name: "+y.Namespace+"-storage}",
		"namespace: team", "namespace: "+y.Namespace, "san-42-2", y.Namespace+"-san")
	for _, file := range []string{"administrator", "machine"} {
		text, err := os.ReadFile("../../../examples/direct-claim/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(replace.Replace(string(text))), 4096)
		for {
			u := &unstructured.Unstructured{}
			if docs.Decode(u) != nil {
				break
			}
			if file == "machine" {
				u.SetNamespace(y.Namespace)
			}
			if err := y.Kube.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			if k := u.GetKind(); k == "Namespace" || k == "PersistentVolume" {
				t.Cleanup(func() { _ = y.Kube.Delete(context.Background(), u) })
			}
		}
	}
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "db"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	writes(y, vm, l.File)
	unmounted(y, vm, "db")
}
