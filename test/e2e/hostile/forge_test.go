//go:build e2e

package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// controlledBy returns a reference that says that an object of a user made this one. The API server does not check that.
func controlledBy(version, kind string, obj client.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: obj.GetName(), UID: obj.GetUID(), Controller: new(true)}}
}

// claimsOfOthers are ways to be given the victim's volume.
var claimsOfOthers = attempts{
	"name its volume": func(h *hostile) {
		c := h.populated("names-it", "", "")
		c.Spec.DataSourceRef, c.Spec.VolumeName = nil, h.volume.Name
		if h.tries(c) {
			h.own.StaysPending("names-it", quiet)
		}
		h.kept()
	},
	"make the prime claim first": func(h *hostile) {
		node := h.own.ReadyNodes()[0]
		h.make(&cdiv1.VolumeImportSource{ObjectMeta: metav1.ObjectMeta{Name: "prime"}, Spec: cdiv1.VolumeImportSourceSpec{
			Source: &cdiv1.ImportSourceType{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: h.own.Web.URL + "/disk.img"}}}})
		class := fixture.ClassWaits
		target := h.populated("target", "VolumeImportSource", "prime")
		target.Spec.StorageClassName = &class
		h.make(target)
		prime := h.populated("prime-"+string(target.UID), "", "")
		prime.Spec.DataSourceRef, prime.Spec.VolumeName, prime.Spec.StorageClassName = nil, h.volume.Name, &class
		prime.OwnerReferences = controlledBy("v1", "PersistentVolumeClaim", target)
		prime.Labels = map[string]string{"app": "containerized-data-importer"}
		prime.Annotations = map[string]string{fixture.PodPhaseAnnotation: "Succeeded", fixture.PopulatedForAnnotation: prime.Name, fixture.SelectedNodeAnnotation: node}
		h.tries(prime)
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, fixture.SelectedNodeAnnotation, node)
		if err := h.as.Patch(h.own.Context(), target, client.RawPatch(types.MergePatchType, patch)); err != nil && !refusal(err) {
			h.t().Fatal(err)
		}
		h.kept()
	},
	"have a move of their own take it": takeByMove,
	"say that a claim is the victim's volume's": func(h *hostile) {
		c := h.populated("adopted", "", "")
		c.Spec.DataSourceRef, c.Spec.VolumeName = nil, h.volume.Name
		c.Annotations = map[string]string{fixture.PodPhaseAnnotation: "Succeeded", fixture.PopulatedForAnnotation: "adopted", "pv.kubernetes.io/bind-completed": "yes"}
		h.tries(c)
		dv := h.clone("adopted")
		dv.Spec.Source = &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
		dv.Annotations = map[string]string{"cdi.kubevirt.io/allowClaimAdoption": "true", "cdi.kubevirt.io/storage.prePopulated": "adopted"}
		h.tries(dv)
		h.kept()
	},
	"say that its volume was filled": volumeFilled,
}

// forgedPods are pods that say to be Berth's, by labels, names and owners.
var forgedPods = attempts{
	"a launcher of the victim's machine": func(h *hostile) {
		i := h.yard(h.victim).InstanceOf(h.own.Context(), h.machine)
		for n := range 3 {
			h.pod(framework.Pod{Name: fmt.Sprintf("launcher-%d", n), Script: "exit 1", Labels: map[string]string{
				"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": string(i.UID), "kubevirt.io/domain": i.Name,
			}, Change: func(p *corev1.Pod) { p.OwnerReferences = controlledBy("kubevirt.io/v1", "VirtualMachineInstance", i) }})
		}
		h.served("launcher")
		h.machineRuns()
	},
	"a target of the victim's migration": func(h *hostile) {
		i := h.yard(h.victim).InstanceOf(h.own.Context(), h.machine)
		machine := fmt.Sprintf(`{"namespace":%q,"name":%q,"uid":%q,"incoming":"00000000-0000-0000-0000-000000000000"}`, i.Namespace, i.Name, i.UID)
		h.forges(framework.Pod{Name: "virt-launcher-" + i.Name + "-" + string(i.UID)[:5] + "-00000000", Script: "exit 1", Labels: map[string]string{
			"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": string(i.UID), "kubevirt.io/domain": i.Name,
		}, Change: func(p *corev1.Pod) {
			p.OwnerReferences = controlledBy("kubevirt.io/v1", "VirtualMachineInstance", i)
			p.Annotations = map[string]string{"berth.dev/machine": machine, "berth.dev/go": "yes", "berth.dev/evacuate": "yes",
				"berth.dev/move": `{"id":"00000000-0000-0000-0000-000000000000","run":true}`}
		}})
		h.served("target")
		h.machineRuns()
		if now := h.yard(h.victim).InstanceOf(h.own.Context(), h.machine); now.Status.EvacuationNodeName != "" || len(now.Status.ActivePods) != 1 {
			h.t().Errorf("the victim's machine is to leave %q, and is in %v", now.Status.EvacuationNodeName, now.Status.ActivePods)
		}
	},
	"a worker of the victim's volume": func(h *hostile) {
		dv := h.victim.ReadVolume("golden")
		h.forges(framework.Pod{Name: "importer-golden", Script: "exit 1", Labels: map[string]string{
			"app": "containerized-data-importer", "cdi.kubevirt.io": "importer", "berth.dev/claim-uid": string(h.golden.UID),
			"cdi.kubevirt.io/OwnedByUID": string(dv.UID),
		}, Change: func(p *corev1.Pod) { p.OwnerReferences = controlledBy("cdi.kubevirt.io/v1beta1", "DataVolume", dv) }})
		h.served("worker")
		h.victim.UntilPhase("golden", cdiv1.Succeeded)
		h.kept()
	},
	"a server of the victim's clone":               serverOfClone,
	"a server of a clone that is said to be gone":  serverOfGone,
	"a worker that sends the controller elsewhere": workerRedirects,
}

// volumeFilled: the tenant has a claim that names the victim's volume and asks for an import, and a pod that says to have made it.
// The volume records the claim it was filled for, which prevents a second import: it must not record the tenant's claim.
func volumeFilled(h *hostile) {
	class := fixture.ClassWaits
	c := h.populated("says-filled", "", "")
	c.Spec.DataSourceRef, c.Spec.VolumeName, c.Spec.StorageClassName = nil, h.volume.Name, &class
	c.Annotations = map[string]string{"cdi.kubevirt.io/storage.import.endpoint": h.own.Web.URL + "/disk.img"} // it is held: nobody makes its worker
	if !h.tries(c) {
		return
	}
	report := `{"version":1,"outcome":"Done"}`
	h.forges(framework.Pod{Name: "importer-says-filled", Script: "printf '%s' '" + report + "' > /dev/termination-log", Labels: map[string]string{
		"app": "containerized-data-importer", "cdi.kubevirt.io": "importer", "berth.dev/claim-uid": string(c.UID), "cdi.kubevirt.io/OwnedByUID": string(c.UID),
	}, Change: func(p *corev1.Pod) { p.OwnerReferences = controlledBy("v1", "PersistentVolumeClaim", c) }})
	h.own.WaitPhase("importer-says-filled", corev1.PodSucceeded)
	patch := []byte(`{"metadata":{"annotations":{"cdi.kubevirt.io/storage.bind.immediate.requested":""}}}`)
	if err := h.as.Patch(h.own.Context(), c, client.RawPatch(types.MergePatchType, patch)); err != nil {
		h.t().Fatal(err)
	}
	h.own.Stays("the volume is not said to be filled for the tenant's claim", quiet, func(ctx context.Context) (bool, string) {
		var v corev1.PersistentVolume
		if err := h.own.Kube.Get(ctx, client.ObjectKeyFromObject(h.volume), &v); err != nil {
			return false, err.Error()
		}
		return v.Annotations["berth.dev/filled-for"] != string(c.UID), fmt.Sprint(v.Annotations)
	})
	h.kept()
}

// pod starts one of the tenant's pods.
func (h *hostile) pod(p framework.Pod) {
	h.t().Helper()
	e := *h.own.Env
	e.Client = h.asCore
	e.Start(p)
}

// forges: the tenant tries to make a pod with what only Berth writes on pods, and is refused. Then an administrator makes it for them, as if
// there were no such policy: it must do no harm either.
func (h *hostile) forges(p framework.Pod) {
	h.t().Helper()
	pod := h.own.Render(p)
	_, err := h.asCore.CoreV1().Pods(h.own.Namespace).Create(h.own.Context(), pod, metav1.CreateOptions{})
	if err == nil || !refusal(err) || !strings.Contains(err.Error(), "only Berth writes") {
		h.t().Errorf("the tenant's pod %s: got %v, want a refusal that says what only Berth writes", p.Name, err)
	}
	if err != nil {
		h.own.Start(p)
	}
}

// serverOfClone: the victim clones between two namespaces of theirs. The tenant has pods and claims that say to be what is
// left of that clone. It is complete, holds what its source does, and when it is deleted nothing of it is left.
func serverOfClone(h *hostile) {
	second := fixture.NewVolumes(h.t())
	dv := h.clone("across")
	class := fixture.ClassWaits
	dv.Namespace, dv.Spec.Source, dv.Spec.Storage.StorageClassName = second.Namespace, h.source(), &class
	second.CreateObject(dv)
	labels := func(role string) map[string]string {
		return map[string]string{"app": "containerized-data-importer", "cdi.kubevirt.io": role, "cdi.kubevirt.io/OwnedByUID": string(dv.UID)}
	}
	h.pod(framework.Pod{Name: string(dv.UID) + "-source-pod", Script: "sleep 3600", Labels: labels("cdi-clone-source")})
	c := h.populated(string(dv.UID)+"-restored", "", "")
	c.Spec.DataSourceRef, c.Labels = nil, labels("restored")
	h.make(c)
	second.UntilPhase("across", cdiv1.WaitForFirstConsumer)
	second.Consume("across", "")
	second.UntilPhase("across", cdiv1.Succeeded)
	second.Delete("consumer-across")
	second.Holds("across", fixture.DiskImage(24), 40*fixture.MiB)
	if err := second.Kube.Delete(second.Context(), dv); err != nil {
		h.t().Fatal(err)
	}
	second.Wait("nothing of the clone to be left", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := second.Kube.Get(ctx, client.ObjectKeyFromObject(dv), &cdiv1.DataVolume{})
		if !apierrors.IsNotFound(err) {
			return false, fmt.Sprintf("the volume: %v", err)
		}
		left := h.victimsPods()
		var secrets corev1.SecretList
		if err := second.Kube.List(ctx, &secrets, client.InNamespace(h.victim.Namespace)); err != nil {
			return false, err.Error()
		}
		for _, s := range secrets.Items {
			left = append(left, s.Name)
		}
		for _, name := range left {
			if strings.HasPrefix(name, string(dv.UID)) {
				return false, name
			}
		}
		return true, ""
	})
}

// serverOfGone: the victim clones between two namespaces of theirs. While that is under way a pod of the tenant says to be the clone's server and to work
// for a volume that does not exist, again and again: what is left of such a clone is removed. The keys of the victim's clone are not. The tenant
// cannot make such a pod; an administrator makes it for them, as if they could.
func serverOfGone(h *hostile) {
	second := fixture.NewVolumes(h.t())
	dv := h.clone("across")
	class := fixture.ClassWaits
	dv.Namespace, dv.Spec.Source, dv.Spec.Storage.StorageClassName = second.Namespace, h.source(), &class
	second.CreateObject(dv)
	second.UntilPhase("across", cdiv1.WaitForFirstConsumer)
	forged := func(n int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.own.Namespace, Name: string(dv.UID) + "-source-pod",
			Labels:      map[string]string{"app": "containerized-data-importer", "cdi.kubevirt.io": "cdi-clone-source", "cdi.kubevirt.io/OwnedByUID": string(dv.UID)},
			Annotations: map[string]string{"berth.dev/serves": fmt.Sprintf("%s/gone-%d", second.Namespace, n)}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.invalid/none"}}}}
	}
	if err := h.as.Create(h.own.Context(), forged(0)); err == nil || !refusal(err) {
		h.t().Errorf("the tenant's server: got %v, want a refusal", err)
	}
	ctx, stop := context.WithCancel(h.own.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := 1; ctx.Err() == nil; n++ {
			p := forged(n)
			err := h.own.Kube.Create(ctx, p)
			if apierrors.IsAlreadyExists(err) { // the one before is not gone yet: it says something else now
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"berth.dev/serves":%q}}}`, p.Annotations["berth.dev/serves"])
				err = h.own.Kube.Patch(ctx, p, client.RawPatch(types.MergePatchType, patch))
			}
			if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				h.t().Errorf("forge a server: %v", err)
				return
			}
			<-tick.C
		}
	}()
	second.Consume("across", "")
	second.UntilPhase("across", cdiv1.Succeeded)
	stop()
	<-done
	second.Delete("consumer-across")
	second.Holds("across", fixture.DiskImage(24), 40*fixture.MiB)
}

// workerRedirects: the tenant makes the worker of their own volume themselves. When the controller asks it how far it is, it
// sends the controller to another server. The controller, which reaches more than the tenant does, must not go there.
func workerRedirects(h *hostile) {
	var asked atomic.Int64
	elsewhere := h.own.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{}`))
	}))
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "redirects"}, Spec: fixture.BlankDisk(fixture.ClassWaits)}
	dv.Spec.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: h.own.Web.URL + "/disk.img"}}
	h.make(dv)
	h.own.UntilPhase("redirects", cdiv1.WaitForFirstConsumer)
	claim := h.own.ReadClaim("redirects")
	answer := fmt.Sprintf(`HTTP/1.1 302 Found\r\nLocation: %s/progress\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`, elsewhere)
	h.forges(framework.Pod{Name: "importer-redirects", Claims: []string{"redirects"}, Labels: map[string]string{
		"app": "containerized-data-importer", "cdi.kubevirt.io": "importer", "berth.dev/claim-uid": string(claim.UID),
		"cdi.kubevirt.io/OwnedByUID": string(dv.UID),
	}, Script: "while :; do printf '" + answer + "' | nc -l -p 8080 >/dev/null; done", Change: func(p *corev1.Pod) {
		p.OwnerReferences = controlledBy("cdi.kubevirt.io/v1beta1", "DataVolume", dv)
	}})
	h.own.WaitRunning("importer-redirects")
	h.served("redirects")
	h.own.Stays("the controller goes nowhere", quiet, func(context.Context) (bool, string) {
		return asked.Load() == 0, fmt.Sprintf("it went there %d times", asked.Load())
	})
}

// bait is a machine of the tenant that runs, with a disk of which snapshots can be taken.
func (h *hostile) bait(name string) (*kubevirt.VirtualMachine, *kubevirt.VirtualMachineInstance) {
	h.t().Helper()
	y := h.yard(h.own)
	vm := y.TinyMachine(name, fixture.ClassDisk)
	h.make(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	return vm, y.InstanceOf(h.own.Context(), vm)
}

// takeByMove: the tenant's claim names the victim's volume, and a pod says to be the target of a migration that sent a disk into it. The
// pod and its instance go, and a stopped machine of that name is there to be given its disk. The second time an administrator makes the
// pod, which the tenant may not.
func takeByMove(h *hostile) {
	ctx := h.own.Context()
	bait := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "bait"}, Spec: h.yard(h.own).TinyMachine("bait").Spec.Template.Spec}
	bait.Spec.Volumes = []kubevirt.Volume{{Name: "disk", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "loot"}}}}
	bait.Spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "disk"}}
	h.make(bait)
	c := h.populated("move-11111111-disk", "", "")
	c.Spec.DataSourceRef, c.Spec.VolumeName = nil, h.volume.Name
	h.tries(c)
	machine := fmt.Sprintf(`{"namespace":%q,"name":"bait","uid":%q,"incoming":"11111111-0000-0000-0000-000000000000",`+
		`"spec":{"domain":{"devices":{}},"volumes":[{"name":"disk","persistentVolumeClaim":{"claimName":"loot"}}]}}`, h.own.Namespace, bait.UID)
	name := "virt-launcher-bait-" + string(bait.UID)[:5] + "-11111111"
	h.forges(framework.Pod{Name: name, Script: "sleep 3600", Node: "nowhere", Labels: map[string]string{
		"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": string(bait.UID), "kubevirt.io/domain": "bait",
	}, Change: func(p *corev1.Pod) {
		p.OwnerReferences, p.Finalizers = controlledBy("kubevirt.io/v1", "VirtualMachineInstance", bait), []string{"berth.dev/launcher-end"}
		p.Annotations = map[string]string{"berth.dev/machine": machine, "berth.dev/go": "yes", "berth.dev/move": `{"id":"11111111-0000-0000-0000-000000000000","run":true}`}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name}}})
	}})
	for _, obj := range []client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.own.Namespace, Name: name}}, bait} {
		if err := client.IgnoreNotFound(h.as.Delete(ctx, obj)); err != nil {
			h.t().Fatal(err)
		}
	}
	halted := kubevirt.RunHalted
	vm := h.yard(h.own).TinyMachine("bait")
	vm.Spec.RunStrategy = &halted
	vm.Spec.Template.Spec.Volumes, vm.Spec.Template.Spec.Domain.Devices.Disks = bait.Spec.Volumes, bait.Spec.Domain.Devices.Disks
	h.tries(vm)
	h.kept()
	var pv corev1.PersistentVolume
	if err := h.victim.Kube.Get(ctx, client.ObjectKeyFromObject(h.volume), &pv); err != nil {
		h.t().Fatal(err)
	}
	for _, key := range []string{"berth.dev/replaces", "berth.dev/replaced-by"} {
		if pv.Annotations[key] != "" {
			h.t().Errorf("the victim's volume says %s: %s", key, pv.Annotations[key])
		}
	}
}
