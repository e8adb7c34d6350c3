//go:build e2e

package e2e

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
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/test/netserver"
)

// vault makes a namespace of the administrator's with a Secret in it. The test's own namespace knows nothing of it.
func (y *yard) vault(data map[string]string) *corev1.SecretReference {
	y.T.Helper()
	name := y.Namespace + "-vault"
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, obj := range []client.Object{space,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "login"}, StringData: data}} {
		if err := y.kube.Create(y.T.Context(), obj); err != nil {
			y.T.Fatal(err)
		}
	}
	y.T.Cleanup(func() { _ = y.kube.Delete(context.Background(), space) })
	return &corev1.SecretReference{Namespace: name, Name: "login"}
}

// mayRead gives Berth's controller the right to that one Secret, as an administrator does.
func (y *yard) mayRead(ref *corev1.SecretReference) {
	y.T.Helper()
	meta := metav1.ObjectMeta{Namespace: ref.Namespace, Name: "berth-disks"}
	for _, obj := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
			ResourceNames: []string{ref.Name}, Verbs: []string{"get"}}}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "berth-disks"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "berth", Name: "berth-controller"}}}} {
		if err := y.kube.Create(y.T.Context(), obj); err != nil {
			y.T.Fatal(err)
		}
	}
}

// staticClaim makes a PersistentVolume and the claim that it is for.
func (y *yard) staticClaim(name string, source corev1.PersistentVolumeSource, access corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	y.T.Helper()
	return y.staticClaimOf(name, corev1.PersistentVolumeBlock, source, access)
}

func (y *yard) staticClaimOf(name string, mode corev1.PersistentVolumeMode, source corev1.PersistentVolumeSource,
	access corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	y.T.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("128Mi")}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: y.Namespace + "-" + name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{access}, VolumeMode: &mode,
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, PersistentVolumeSource: source,
		ClaimRef: &corev1.ObjectReference{Namespace: y.Namespace, Name: name},
	}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: pv.Spec.AccessModes, VolumeMode: pv.Spec.VolumeMode, StorageClassName: new(""), VolumeName: pv.Name,
		Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}
	for _, obj := range []client.Object{pv, claim} {
		if err := y.kube.Create(y.T.Context(), obj); err != nil {
			y.T.Fatal(err)
		}
	}
	y.T.Cleanup(func() { _ = y.kube.Delete(context.Background(), pv) })
	return pv
}

// consent is the administrator's, on the PersistentVolume.
func (y *yard) consent(pv *corev1.PersistentVolume, more ...string) {
	y.T.Helper()
	y.kubectl(append([]string{"annotate", "pv", pv.Name, "berth.dev/direct=true"}, more...)...)
}

// unmounted: the launcher's pod names the claim and no container of it has it.
func (y *yard) unmounted(vm *kubevirt.VirtualMachine, claim string) {
	y.T.Helper()
	_, launchers := y.pods(y.Context(), vm)
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

func byClaim(claim string, direct *bool) kubevirt.Volume {
	return kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: claim, Direct: direct}}}
}

func (y *yard) iscsiVolume(l netserver.LUN, ref *corev1.SecretReference) corev1.PersistentVolumeSource {
	s := y.iscsi()
	return corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{
		TargetPortal: net.JoinHostPort(s.Address, strconv.Itoa(s.Port)), IQN: l.Target, Lun: int32(l.Number), SessionCHAPAuth: ref != nil, SecretRef: ref}}
}

// TestNetworkDiskClaimISCSI: a guest boots from a claim whose PersistentVolume is a LUN with CHAP, without a mount. Without the
// administrator's two words it does not: the annotation, and the right to the one Secret. The claim is protected, and the
// same LUN by its address is the same disk.
func TestNetworkDiskClaimISCSI(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	l := y.lun("erin", "a password of the vault's")
	ref := y.vault(map[string]string{"node.session.auth.username": l.User, "node.session.auth.password": l.Password, "other": "nobody's business"})
	pv := y.staticClaim("root", y.iscsiVolume(l, ref), corev1.ReadWriteOnce)
	vm := y.networked("claimed", byClaim("root", new(true)))
	y.create(vm)
	y.reason(vm, "DirectForbidden", "berth.dev/direct=true")
	y.consent(pv)
	y.reason(vm, "DirectForbidden", "may not read the Secret")
	y.mayRead(ref)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	y.writes(vm, l.File)
	y.unmounted(vm, "root")
	y.untold(vm, l.Password)
	y.lent(vm, "node.session.auth.username", "node.session.auth.password")

	var record accessv1.DiskAccess
	if err := y.kube.Get(t.Context(), client.ObjectKey{Name: identity.ISCSI(l.Target, l.Number).Name()}, &record); err != nil {
		t.Errorf("the LUN has no record: %v", err)
	}
	second := y.networked("addressed", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{ISCSI: y.iscsiSource(l)}})
	y.create(second)
	y.reason(second, "DiskInUse", "machine claimed has it write-exclusive")

	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "root"}}
	if err := y.kube.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	y.Stays("the claim of a running guest", 10*time.Second, func(ctx context.Context) (bool, string) {
		err := y.kube.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		return err == nil && claim.DeletionTimestamp != nil, fmt.Sprintf("%v %v", claim.Status.Phase, err)
	})
	if err := y.kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	y.status(second, kubevirt.StatusRunning, boot)
	y.Wait("the claim to go after its machine", patience, func(ctx context.Context) (bool, string) {
		err := y.kube.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		return client.IgnoreNotFound(err) == nil && err != nil, fmt.Sprint(err)
	})
}

// lent: one Secret of the machine's namespace has these keys of the administrator's Secret and no other, and goes with the run.
func (y *yard) lent(vm *kubevirt.VirtualMachine, keys ...string) {
	y.T.Helper()
	var list corev1.SecretList
	if err := y.kube.List(y.T.Context(), &list, client.InNamespace(y.Namespace)); err != nil {
		y.T.Fatal(err)
	}
	found := 0
	for _, s := range list.Items {
		if s.Type != "berth.dev/disk-login" {
			continue
		}
		found++
		if len(s.Data) != len(keys) || metav1.GetControllerOf(&s) == nil || metav1.GetControllerOf(&s).UID != y.instance(y.T.Context(), vm).UID {
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
	y := newYard(t)
	c := y.ceph()
	ref := y.vault(map[string]string{"key": c.Key, "userID": c.User, "userKey": c.Key, "adminKey": "nobody's business"})
	y.mayRead(ref)
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
		image, err := c.Add(guestDir + "/" + testguest.Raw)
		if err != nil {
			t.Fatal(err)
		}
		y.consent(y.staticClaim(k.name, k.source(image), corev1.ReadWriteOncePod), k.more...)
		vm := y.networked(k.name, byClaim(k.name, k.direct))
		y.boots(vm)
		y.guestWrites(vm)
		y.unmounted(vm, k.name)
		file := filepath.Join(t.TempDir(), "exported")
		if err := c.Export(image, file); err != nil {
			t.Fatal(err)
		}
		y.written(file)
		y.untold(vm, c.Key)
		y.lent(vm, "key", "userID", "userKey")
		y.clear()
	}
}

// TestNetworkDiskClaimMounted: without consent a machine that says nothing of direct gets a mount, and so does one that refuses
// it. No kubelet here knows ceph-csi, so that the launcher waits for the mount: that it does is the proof.
func TestNetworkDiskClaimMounted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ref := y.vault(map[string]string{"userID": "x", "userKey": "eA=="})
	y.mayRead(ref)
	for name, direct := range map[string]*bool{"unsaid": nil, "refused": new(false)} {
		pv := y.staticClaim(name, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "rbd.csi.ceph.com", VolumeHandle: name,
			NodeStageSecretRef: ref, VolumeAttributes: map[string]string{"pool": "p", "staticVolume": "true", "monitors": "192.0.2.1"}}}, corev1.ReadWriteOnce)
		if direct != nil {
			y.consent(pv)
		}
		vm := y.networked(name, byClaim(name, direct))
		y.create(vm)
		y.Wait("a launcher with a device", patience, func(ctx context.Context) (bool, string) {
			_, launchers := y.pods(ctx, vm)
			return len(launchers) == 1 && len(launchers[0].Spec.Containers[0].VolumeDevices) == 1, fmt.Sprint(len(launchers))
		})
	}
	var list corev1.SecretList
	if err := y.kube.List(t.Context(), &list, client.InNamespace(y.Namespace)); err != nil {
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
	y := newYard(t)
	l := y.lun("grace", "a password of an example")
	s := y.iscsi()
	replace := strings.NewReplacer("san.example.com:3260", net.JoinHostPort(s.Address, strconv.Itoa(s.Port)), "iqn.2017-01.io.kubevirt:sn.42", l.Target,
		"lun: 2", fmt.Sprintf("lun: %d", l.Number), "username: vm", "username: "+l.User, "change-me-please", l.Password,
		"namespace: storage", "namespace: "+y.Namespace+"-storage", "{name: storage}", "{name: "+y.Namespace+"-storage}",
		"namespace: team", "namespace: "+y.Namespace, "san-42-2", y.Namespace+"-san")
	for _, file := range []string{"administrator", "machine"} {
		text, err := os.ReadFile("../../examples/direct-claim/" + file + ".yaml")
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
			if err := y.kube.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			if k := u.GetKind(); k == "Namespace" || k == "PersistentVolume" {
				t.Cleanup(func() { _ = y.kube.Delete(context.Background(), u) })
			}
		}
	}
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "db"}}
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	y.writes(vm, l.File)
	y.unmounted(vm, "db")
}
