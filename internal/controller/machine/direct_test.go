package machine

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/grant"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// lender is a world with an instance whose claim is bound to a LUN of the administrator's, whose login is in another namespace.
func lender(t *testing.T, direct *bool, change func(pv *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim)) *world {
	t.Helper()
	w := newWorld(t, scenario{strategy: kubevirt.RunHalted})
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "lun", UID: "lun", Annotations: map[string]string{netdisk.AnnDirect: "true"}},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: ns, Name: "data", UID: "data"}, StorageClassName: "san",
			PersistentVolumeSource: corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.5", IQN: "iqn.2017-01.io.kubevirt:sn.42",
				Lun: 2, SessionCHAPAuth: true, SecretRef: &corev1.SecretReference{Namespace: "vault", Name: "chap"}}}}}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data", UID: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		VolumeName: "lun", VolumeMode: new(corev1.PersistentVolumeBlock), StorageClassName: new("san"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	if change != nil {
		change(pv, c)
	}
	status := c.Status
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a", UID: "run-a"}}
	i.Spec.Volumes = []kubevirt.Volume{{Name: "data", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "data", Direct: direct}}}}
	for _, obj := range []client.Object{pv, c, i, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "chap"},
		Data: map[string][]byte{netdisk.CHAPUser: []byte("alice"), netdisk.CHAPPassword: []byte("hush"), "root": []byte("nobody's business")}}} {
		w.must(w.api.Create(context.Background(), obj))
	}
	c.Status = status
	w.must(w.api.Status().Update(context.Background(), c))
	return w
}

// step reconciles the instance until nothing changes, without a cluster around it.
func (w *world) step() {
	w.t.Helper()
	for range 6 {
		_, err := w.r.Instance.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: "a"}})
		if err != nil && !apierrors.IsConflict(err) && !strings.Contains(err.Error(), grant.ErrUndecided.Error()) {
			w.t.Fatal(err)
		}
	}
}

// opened returns how the launcher opens its disk, which keys were copied, and which reason is reported.
func (w *world) opened() (how string, keys []string, reason string) {
	w.t.Helper()
	var pods corev1.PodList
	w.must(w.api.List(context.Background(), &pods, client.MatchingLabels{render.LabelMachine: "virt-launcher"}))
	for _, p := range pods.Items {
		how = "mount"
		if _, ok := launcherpod.Machine(&p).Direct["data"]; ok && len(p.Spec.Containers[0].VolumeDevices) == 0 {
			how = "direct"
		}
	}
	var secrets corev1.SecretList
	w.must(w.api.List(context.Background(), &secrets, client.InNamespace(ns)))
	for _, s := range secrets.Items {
		keys = append(keys, slices.Sorted(maps.Keys(s.Data))...)
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](context.Background(), w.api, ns, "a")
	w.must(err)
	return how, keys, i.Status.Reason
}

// TestDirect: a machine gets the login of a disk only with the administrator's consent and by a volume that says that it is the
// claim's; a disk without a login needs no consent. Most rows are attempts of a tenant, or consents that an administrator has not
// given.
func TestDirect(t *testing.T) {
	chap := []string{netdisk.CHAPPassword, netdisk.CHAPUser}
	open := func(pv *corev1.PersistentVolume, says map[string]string) {
		pv.Annotations, pv.Spec.ISCSI.SessionCHAPAuth, pv.Spec.ISCSI.SecretRef = says, false, nil
	}
	for name, c := range map[string]struct {
		direct *bool
		change func(pv *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim)
		how    string
		keys   []string
		reason state.MachineReason
	}{
		"asked for":              {new(true), nil, "direct", chap, ""},
		"by default":             {nil, nil, "direct", chap, ""},
		"not wanted":             {new(false), nil, "mount", nil, ""},
		"no consent":             {new(true), func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Annotations = nil }, "", nil, state.DirectForbidden},
		"no consent, by default": {nil, func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Annotations = nil }, "mount", nil, ""},
		"consent taken back": {new(true), func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Annotations[netdisk.AnnDirect] = "false"
		}, "", nil, state.DirectForbidden},
		"no login, no consent":             {new(true), func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { open(pv, nil) }, "direct", nil, ""},
		"no login, no consent, by default": {nil, func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { open(pv, nil) }, "mount", nil, ""},
		"no login, refused": {new(true), func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			open(pv, map[string]string{netdisk.AnnDirect: "false"})
		}, "", nil, state.DirectForbidden},
		"a consent of the tenant's": {new(true), func(pv *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			pv.Annotations, c.Annotations = nil, map[string]string{netdisk.AnnDirect: "true"}
		}, "", nil, state.DirectForbidden},
		"a volume of somebody else": {new(true), func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "other", Name: "data", UID: "theirs"}
		}, "", nil, state.DisksFilling},
		"a volume of an earlier claim": {new(true), func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef.UID = "earlier" }, "", nil, state.DisksFilling},
		"a volume nobody has":          {new(true), func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef = nil }, "", nil, state.DisksFilling},
		"a claim that only says so": {new(true), func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Status.Phase = corev1.ClaimPending
		}, "", nil, state.DisksFilling},
		"a filesystem": {new(true), func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
		}, "", nil, state.DirectImpossible},
		"no network disk": {new(true), func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{}
		},
			"", nil, state.DirectImpossible},
		"a Secret of its own": {new(true), func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.ISCSI.SecretRef.Namespace = ""
		}, "direct", nil, ""},
		"a Secret that is not there": {new(true), func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.ISCSI.SecretRef.Name = "none"
		},
			"", nil, state.DirectForbidden},
		"a Secret that is not there, by default": {nil, func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.ISCSI.SecretRef.Name = "none"
		},
			"mount", nil, ""},
	} {
		w := lender(t, c.direct, c.change)
		w.step()
		how, keys, reason := w.opened()
		if how != c.how || !slices.Equal(keys, c.keys) || c.reason != "" && reason != string(c.reason) {
			t.Errorf("%s: %q with %v, %s", name, how, keys, reason)
		}
	}
}

// TestDirectWithoutTheRight: the consent is not enough if the server does not let us read the Secret; the machine says what to do
// and names no Secret.
func TestDirectWithoutTheRight(t *testing.T) {
	w := lender(t, new(true), nil)
	w.r.Read.Live = interceptor.NewClient(w.api.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.Secret); ok {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, nil)
			}
			return c.Get(ctx, key, obj, opts...)
		}})
	w.step()
	how, keys, reason := w.opened()
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](context.Background(), w.api, ns, "a")
	w.must(err)
	text, _ := json.Marshal(i.Status)
	if how != "" || len(keys) > 0 || reason != string(state.DirectForbidden) || !strings.Contains(string(text), "by a Role in the Secret's namespace") ||
		strings.Contains(string(text), "vault") || strings.Contains(string(text), "chap") {
		t.Errorf("%q with %v: %s", how, keys, text)
	}
}

// TestDirectByClass: a class consents for its volumes; a claim of it that waits for its first consumer is bound before it is
// decided how it is opened.
func TestDirectByClass(t *testing.T) {
	w := lender(t, nil, func(pv *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
		pv.Annotations, pv.Spec.ClaimRef, c.Spec.VolumeName, c.Status.Phase = nil, nil, "", corev1.ClaimPending
	})
	w.must(w.api.Create(context.Background(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "san", Annotations: map[string]string{netdisk.AnnDirect: "true"}},
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}))
	w.step()
	var pods corev1.PodList
	w.must(w.api.List(context.Background(), &pods))
	if len(pods.Items) != 1 || pods.Items[0].Annotations[render.AnnConsumer] == "" || len(pods.Items[0].Spec.Containers[0].VolumeDevices) != 0 {
		t.Fatalf("before it is bound: %+v", pods.Items)
	}
	p, ctx := pods.Items[0], context.Background()
	p.Spec.NodeName = "node1"
	w.must(w.api.Update(ctx, &p))
	pv, err := cluster.Get[corev1.PersistentVolume](ctx, w.api, "", "lun")
	w.must(err)
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ns, Name: "data", UID: "data"}
	w.must(w.api.Update(ctx, pv))
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, w.api, ns, "data")
	w.must(err)
	c.Spec.VolumeName = "lun"
	w.must(w.api.Update(ctx, c))
	c.Status.Phase = corev1.ClaimBound
	w.must(w.api.Status().Update(ctx, c))
	w.step()
	for _, p := range podsNamed(w, "virt-launcher-a-run-a") {
		if _, ok := launcherpod.Machine(&p).Direct["data"]; ok {
			return
		}
	}
	t.Error("bound by a class that consents, it is not opened directly")
}

func podsNamed(w *world, name string) []corev1.Pod {
	var pods corev1.PodList
	w.must(w.api.List(context.Background(), &pods))
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Name != name })
}

// TestDirectBesideAMount: a pod that has the claim keeps a machine from opening its disk directly, unless many may have it.
func TestDirectBesideAMount(t *testing.T) {
	for mode, free := range map[corev1.PersistentVolumeAccessMode]bool{corev1.ReadWriteOnce: false, corev1.ReadWriteMany: true} {
		w := lender(t, new(true), func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{mode}
		})
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other", UID: "other"}, Spec: corev1.PodSpec{NodeName: "node1",
			Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
		w.must(w.api.Create(context.Background(), other))
		w.step()
		how, _, reason := w.opened()
		if (how == "direct") != free || !free && reason != string(state.DiskInUse) {
			t.Errorf("%s: %q, %s", mode, how, reason)
		}
	}
}
