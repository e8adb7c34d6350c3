//go:build e2e

package hostile

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// hostile is a tenant who has the role edit in one namespace and nothing else, and a victim in another namespace. What the
// tenant does goes through as and asCore; victim and own are the two namespaces as an administrator sees them.
type hostile struct {
	victim, own *fixture.Volumes
	as          client.Client
	asCore      kubernetes.Interface
	user        string

	golden   *corev1.PersistentVolumeClaim // the victim's, with image(24)
	volume   *corev1.PersistentVolume      // of golden
	machine  *kubevirt.VirtualMachine      // the victim's, which runs
	instance types.UID                     // of machine
	numbers  *fixture.MetricsReader        // an administrator's, of the own namespace
}

// secretImage returns the content of the victim's claim secret.
func secretImage() []byte {
	data := fixture.DiskImage(8)
	for i := range data {
		data[i] ^= 0x5a
	}
	return data
}

// quiet is how long something that must not happen is waited for, once the controllers have looked at what the tenant made.
const quiet = 8 * time.Second

// attempts are the attempts of a tenant, by what they try.
type attempts map[string]func(*hostile)

// TestHostileTenant: an account with only the role edit in one namespace tries to read, to change and to delete what is in
// another, and to stop what all tenants share. Each attempt is a subtest that ends with a look at the victim.
func TestHostileTenant(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	before := h.restarts()
	for name, group := range map[string]attempts{
		"asks": h.requests(), "reads": reads, "proofs": proofs, "claims": claimsOfOthers, "pods": forgedPods, "addresses": addresses, "stops": stops,
	} {
		t.Run(name, func(t *testing.T) { h.all(t, group) })
	}
	h.nothingStolen()
	h.victim.Holds("golden", fixture.DiskImage(24), 40*fixture.MiB)
	h.victim.Holds("secret", secretImage(), 24*fixture.MiB)
	h.machineRuns()
	if after := h.restarts(); after != before {
		t.Errorf("parts of Berth were started again while a tenant attacked them: %s, before %s", after, before)
	}
	if n := h.panics(); n != 0 {
		t.Errorf("reconcilers panicked %d times", n)
	}
}

// all makes the attempts, several at once. They mostly wait, so they do not take the places of other tests, as t.Parallel would.
func (h *hostile) all(t *testing.T, group attempts) {
	const atOnce = 8
	var running errgroup.Group
	running.SetLimit(atOnce)
	for what, attempt := range group {
		running.Go(func() error {
			t.Run(what, func(t *testing.T) { attempt(h.under(t)) })
			return nil
		})
	}
	_ = running.Wait() // none is an error: each subtest says itself what is wrong
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{victim: fixture.NewVolumes(t), own: fixture.NewVolumes(t)}
	h.victim.Kube = fixture.NewClient(t, h.victim.Config)
	h.own.Kube = h.victim.Kube
	h.user = "mallory-" + h.own.Namespace
	h.numbers = fixture.NewMetricsReader(h.own.Env)
	h.own.CreateObject(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.own.Namespace, Name: "edit"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: h.user}},
	})
	config := rest.CopyConfig(h.own.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: h.user, Groups: []string{"system:authenticated"}}
	h.as = fixture.NewClient(t, config)
	var err error
	if h.asCore, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	h.victim.Web.Put("/secret.img", secretImage())
	h.victim.CreateVolume(fixture.Volume{Name: "golden", Class: fixture.ClassImmediate, Storage: "40Mi"})
	h.victim.CreateVolume(fixture.Volume{Name: "secret", Class: fixture.ClassImmediate, Storage: "24Mi", URL: h.victim.Web.URL + "/secret.img"})
	y := h.yard(h.victim)
	h.machine = y.TinyMachine("machine", fixture.ClassDisk)
	y.CreateMachine(h.machine)
	h.victim.UntilPhase("golden", cdiv1.Succeeded)
	h.victim.UntilPhase("secret", cdiv1.Succeeded)
	h.golden = h.victim.ReadClaim("golden")
	h.volume = h.victim.WaitBound("golden")
	y.WaitStatus(h.machine, kubevirt.StatusRunning, fixture.BootPatience)
	h.instance = y.InstanceOf(t.Context(), h.machine).UID
	return h
}

// under is the same two namespaces in the hands of a subtest.
func (h *hostile) under(t *testing.T) *hostile {
	t.Helper()
	mine := *h
	mine.victim = &fixture.Volumes{Env: fixture.EnvOf(t, h.victim.Env), Kube: h.victim.Kube, Web: h.victim.Web}
	mine.own = &fixture.Volumes{Env: fixture.EnvOf(t, h.own.Env), Kube: h.own.Kube, Web: h.own.Web}
	return &mine
}

func (h *hostile) t() *testing.T { return h.own.T }

// yard is one of the namespaces with what machines need, but for a guest's disk.
func (h *hostile) yard(b *fixture.Volumes) *fixture.Machines {
	return &fixture.Machines{Env: b.Env, Kube: b.Kube}
}

// make has the tenant make an object, which must be accepted: what is tested comes after it.
func (h *hostile) make(obj client.Object) {
	h.t().Helper()
	obj.SetNamespace(h.own.Namespace)
	if err := h.as.Create(h.own.Context(), obj); err != nil {
		h.t().Fatalf("the tenant could not make %T %s, which is no crime: %v", obj, obj.GetName(), err)
	}
}

// tries has the tenant make an object. Being refused is as good as an object that comes to nothing; true says that it was made.
func (h *hostile) tries(obj client.Object) bool {
	h.t().Helper()
	obj.SetNamespace(h.own.Namespace)
	err := h.as.Create(h.own.Context(), obj)
	if err != nil && !refusal(err) {
		h.t().Fatalf("the tenant's %T %s was neither made nor refused: %v", obj, obj.GetName(), err)
	}
	if err != nil {
		h.t().Logf("refused: %v", err)
	}
	return err == nil
}

// refusal: the API server says that this may not be, not that something broke.
func refusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// refused: the tenant is told at once that they may not have this.
func (h *hostile) refused(obj client.Object, words string) {
	h.t().Helper()
	obj.SetNamespace(h.own.Namespace)
	err := h.as.Create(h.own.Context(), obj)
	if err == nil || !refusal(err) || !strings.Contains(err.Error(), words) {
		h.t().Errorf("%T %s: got %v, want a refusal that says %q", obj, obj.GetName(), err, words)
	}
}

// neverFilled: a volume of the tenant that would be made of the victim's data gets none. Until its maker has had the time to
// make it, it may not be there; one that is to be blank may be complete.
func (h *hostile) neverFilled(name string) {
	h.t().Helper()
	b, seen := h.own, false
	b.Stays("volume "+name+" has no data", quiet, func(ctx context.Context) (bool, string) {
		var dv cdiv1.DataVolume
		err := b.Kube.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: name}, &dv)
		if apierrors.IsNotFound(err) {
			return true, ""
		}
		seen = true
		filled := dv.Status.Phase == cdiv1.Succeeded || dv.Status.Phase == cdiv1.CloneInProgress ||
			dv.Status.Phase == cdiv1.CSICloneInProgress || dv.Status.Phase == cdiv1.SnapshotForSmartCloneInProgress
		blank := dv.Spec.Source != nil && dv.Spec.Source.Blank != nil
		return err == nil && (!filled || blank), fmt.Sprintf("%v %s: %s", err, dv.Status.Phase, fixture.ReadyMessageOf(&dv))
	})
	h.t().Logf("volume %s was made: %t", name, seen)
	for _, pod := range h.victimsPods() {
		if strings.HasSuffix(pod, "-source-pod") {
			h.t().Errorf("the victim's namespace has a server of its data: %s", pod)
		}
	}
}

func (h *hostile) victimsPods() []string {
	h.t().Helper()
	var pods corev1.PodList
	if err := h.victim.Kube.List(h.own.Context(), &pods, client.InNamespace(h.victim.Namespace)); err != nil {
		h.t().Fatal(err)
	}
	var names []string
	for _, p := range pods.Items {
		names = append(names, p.Name)
	}
	return names
}

// nothingStolen looks at all volumes of the tenant once more, minutes after they were made: each that is complete is blank, or was
// imported or uploaded.
func (h *hostile) nothingStolen() {
	h.t().Helper()
	var all cdiv1.DataVolumeList
	if err := h.own.Kube.List(h.own.Context(), &all, client.InNamespace(h.own.Namespace)); err != nil {
		h.t().Fatal(err)
	}
	for i := range all.Items {
		dv := &all.Items[i]
		s := dv.Spec.Source
		own := s != nil && (s.Blank != nil || s.HTTP != nil || s.Upload != nil)
		if dv.Status.Phase == cdiv1.Succeeded && !own {
			h.t().Errorf("the tenant's volume %s has data: %+v %+v", dv.Name, dv.Spec.Source, dv.Spec.SourceRef)
		}
	}
}

// served: the victim is served while the attack continues: a volume is filled.
func (h *hostile) served(name string) {
	h.t().Helper()
	b := h.victim
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "served-" + name}, Spec: fixture.BlankDisk(fixture.ClassImmediate)}
	b.CreateObject(dv)
	b.UntilPhase(dv.Name, cdiv1.Succeeded)
	if err := b.Kube.Delete(b.Context(), dv); err != nil {
		h.t().Error(err)
	}
}

// kept: the victim's claim is bound to the volume it had, and that volume is the claim's.
func (h *hostile) kept() {
	h.t().Helper()
	b := h.victim
	b.Stays("claim golden keeps its volume", quiet, func(ctx context.Context) (bool, string) {
		var c corev1.PersistentVolumeClaim
		var v corev1.PersistentVolume
		if err := b.Kube.Get(ctx, client.ObjectKeyFromObject(h.golden), &c); err != nil {
			return false, err.Error()
		}
		if err := b.Kube.Get(ctx, client.ObjectKeyFromObject(h.volume), &v); err != nil {
			return false, err.Error()
		}
		same := c.UID == h.golden.UID && c.Status.Phase == corev1.ClaimBound && c.Spec.VolumeName == v.Name &&
			v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == c.UID && v.Status.Phase == corev1.VolumeBound
		return same, fmt.Sprintf("claim %s, volume %s of %v", c.Status.Phase, v.Status.Phase, v.Spec.ClaimRef)
	})
}

// machineRuns: the victim's machine runs, and has not been restarted.
func (h *hostile) machineRuns() {
	h.t().Helper()
	y := h.yard(h.victim)
	y.WaitStatus(h.machine.DeepCopy(), kubevirt.StatusRunning, fixture.Patience)
	if i := y.InstanceOf(h.own.Context(), h.machine); i == nil || i.UID != h.instance {
		h.t().Errorf("the victim's machine has another instance than before: %v", i)
	}
}

// parts returns the pods of Berth that all tenants share.
func (h *hostile) parts() []corev1.Pod {
	h.t().Helper()
	var pods corev1.PodList
	if err := h.victim.Kube.List(h.own.Context(), &pods, client.InNamespace("berth")); err != nil {
		h.t().Fatal(err)
	}
	return pods.Items
}

// restarts returns how often each pod that all tenants share was started again.
func (h *hostile) restarts() string {
	h.t().Helper()
	var all []string
	for _, p := range h.parts() {
		for _, c := range p.Status.ContainerStatuses {
			all = append(all, fmt.Sprintf("%s %d", p.Name, c.RestartCount))
		}
	}
	return strings.Join(all, ", ")
}

// panics is how often a reconciler panicked on what it was given. They are caught, and still each is a bug.
func (h *hostile) panics() int {
	h.t().Helper()
	total := 0
	for _, p := range h.parts() {
		if p.Labels["app.kubernetes.io/component"] != "controller" {
			continue
		}
		numbers := *h.numbers
		numbers.Env = h.own.Env
		known := 0
		for lines := bufio.NewScanner(strings.NewReader(numbers.Page(&p))); lines.Scan(); {
			name, value, ok := strings.Cut(lines.Text(), "} ")
			if !ok || !strings.HasPrefix(name, "controller_runtime_reconcile_panics_total{") {
				continue
			}
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				h.t().Fatal(err)
			}
			known++
			if n > 0 {
				h.t().Logf("%s: %s", p.Name, lines.Text())
			}
			total += int(n)
		}
		if known == 0 {
			h.t().Errorf("the metrics of %s do not say whether reconcilers panic", p.Name)
		}
	}
	return total
}
