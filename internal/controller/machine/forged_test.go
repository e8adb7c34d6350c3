package machine

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
)

// TestPodsThatAreNobodys: pods with the labels of an instance's holders are neither taken for them nor deleted as such.
func TestPodsThatAreNobodys(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways, asks: []func(*world){addDisk(false)}})
	w.run()
	i := w.instance()
	launcher := render.Machine{Instance: i}.PodName(render.Launcher)
	labels := func(volume string) map[string]string {
		return map[string]string{render.LabelMachine: render.HotplugDisk, render.LabelCreatedBy: string(i.UID), render.LabelVolume: volume, render.LabelInstance: i.Name}
	}
	for name, p := range map[string]*corev1.Pod{
		"no owner":      {ObjectMeta: metav1.ObjectMeta{Labels: labels("extra")}},
		"another owner": {ObjectMeta: metav1.ObjectMeta{Labels: labels("extra"), OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: launcher, UID: "other", Controller: new(true)}}}},
		"another name": {ObjectMeta: metav1.ObjectMeta{Labels: labels("extra"), OwnerReferences: []metav1.OwnerReference{
			{Kind: "Pod", Name: launcher, UID: w.podUID(launcher), Controller: new(true)}}}},
		"of no volume": {ObjectMeta: metav1.ObjectMeta{Labels: labels("made-up")}},
	} {
		p.Namespace, p.Name = ns, "a-"+strings.ReplaceAll(name, " ", "-")
		p.Status.Phase = corev1.PodSucceeded // a holder that has ended would be replaced
		w.must(w.api.Create(context.Background(), p))
	}
	before := w.volumeStatus("extra")
	s, err := w.r.Read.Instance(context.Background(), i)
	w.must(err)
	if len(s.Added) != 1 || s.Added[0].Holder == nil || strings.HasPrefix(s.Added[0].Holder.Name, "a-") {
		t.Errorf("volumes seen: %+v", s.Added)
	}
	for range 3 {
		_, err := w.r.Instance.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: vmName}})
		w.must(err)
	}
	if got := w.volumeStatus("extra"); got == nil || got.Phase != before.Phase {
		t.Errorf("the disk was %+v and is %+v", before, got)
	}
	var pods corev1.PodList
	w.must(w.api.List(context.Background(), &pods))
	left := 0
	for _, p := range pods.Items {
		if strings.HasPrefix(p.Name, "a-") {
			left++
		}
	}
	if left != 4 {
		t.Errorf("%d of 4 pods that are not ours are left", left)
	}
}

func (w *world) podUID(name string) types.UID {
	var p corev1.Pod
	w.must(w.api.Get(context.Background(), types.NamespacedName{Namespace: ns, Name: name}, &p))
	return p.UID
}

// TestALauncherThatIsNobodys does not run the machine, and is named.
func TestALauncherThatIsNobodys(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways, nowhere: true}) // its guest has not run yet
	w.run()
	i := w.instance()
	forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: render.Machine{Instance: i}.PodName(render.Launcher)}}
	w.must(w.api.Delete(context.Background(), forged.DeepCopy()))
	_, err := w.keep(context.Background(), ctrl.Request{})
	w.must(err) // it is gone
	w.must(w.api.Create(context.Background(), forged))
	s, err := w.r.Read.Instance(context.Background(), i)
	w.must(err)
	if s.Launcher != nil {
		t.Error("taken for the launcher")
	}
	if err := w.r.Instance.Start(context.Background(), s, render.Launcher); err == nil || !strings.Contains(err.Error(), "not ours: delete it") {
		t.Errorf("got %v", err)
	}
}
