//go:build apiserver

package apiserver

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/task"
)

// stock holds the fields of a volume that KubeVirt's own virt-controller v1.7.0 reads (docs/flows/beside-kubevirt.md lists where).
// The functions about claims are its own code, from the API module that it uses.
type stock struct {
	Waits     bool // a pod is made that has the claim bound
	Ready     bool // the launcher is made, a volume is attached
	Populated bool // a snapshot is taken of it, it is exported
	Bound     corev1.ConditionStatus
	Broken    bool // the machine says DataVolumeError
}

func (p *peer) stock(name string) (stock, error) {
	var v cdiv1.DataVolume
	if err := p.kube.Get(p.Context(), client.ObjectKey{Namespace: team, Name: name}, &v); err != nil {
		return stock{}, err
	}
	var c corev1.PersistentVolumeClaim
	if err := p.kube.Get(p.Context(), client.ObjectKey{Namespace: team, Name: name}, &c); err != nil {
		return stock{}, err
	}
	if owner := metav1.GetControllerOf(&c); owner == nil || owner.Kind != "DataVolume" || owner.UID != v.UID {
		return stock{}, fmt.Errorf("the claim's owner is %v", owner)
	}
	volume := func(string, string) (*cdiv1.DataVolume, error) { return &v, nil }
	s := stock{Broken: v.Status.Phase == cdiv1.Failed}
	for ask, answer := range map[*bool]func(*corev1.PersistentVolumeClaim, func(string, string) (*cdiv1.DataVolume, error)) (bool, error){
		&s.Waits: cdiv1.IsWaitForFirstConsumerBeforePopulating, &s.Ready: cdiv1.IsSucceededOrPendingPopulation, &s.Populated: cdiv1.IsPopulated,
	} {
		var err error
		if *ask, err = answer(&c, volume); err != nil {
			return stock{}, err
		}
	}
	for _, c := range v.Status.Conditions {
		switch c.Type {
		case cdiv1.DataVolumeBound:
			s.Bound = c.Status
		case cdiv1.DataVolumeRunning:
			s.Broken = s.Broken || c.Status == corev1.ConditionFalse && (c.Reason == "Error" || c.Reason == "ImagePullFailed")
		case cdiv1.DataVolumeReady:
			if ready := c.Status == corev1.ConditionTrue; ready != s.Populated {
				return stock{}, fmt.Errorf("the phase is %s while Ready is %s", v.Status.Phase, c.Status)
			}
		}
	}
	return s, nil
}

// reads waits until virt-controller would read that.
func (p *peer) reads(name string, want stock) {
	p.Helper()
	eventually(p.T, fmt.Sprintf("%s to read as %+v", name, want), func() (bool, error) {
		got, err := p.stock(name)
		return err == nil && got == want, fmt.Errorf("%+v, %w", got, err)
	})
}

// template is a volume as virt-controller makes it from a machine's dataVolumeTemplates.
func (p *peer) template(name, class string, more map[string]string) {
	p.Helper()
	notes := map[string]string{"cdi.kubevirt.io/allowClaimAdoption": "true"}
	for key, value := range more {
		notes[key] = value
	}
	v := object(fmt.Sprintf(`{kind: DataVolume, metadata: {name: %s, namespace: team, labels: {kubevirt.io/created-by: machine-uid},
		ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: web, uid: machine-uid, controller: true, blockOwnerDeletion: true}]},
		spec: {source: {http: {url: "http://images.example.com/disk.qcow2"}},
		storage: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, storageClassName: %s, resources: {requests: {storage: 1Gi}}}}}`, name, class))
	v.SetAnnotations(notes)
	p.create(v)
}

func (p *peer) claim(name string) *corev1.PersistentVolumeClaim {
	p.Helper()
	var c corev1.PersistentVolumeClaim
	eventually(p.T, "claim "+name, func() (bool, error) {
		err := p.kube.Get(p.Context(), client.ObjectKey{Namespace: team, Name: name}, &c)
		return err == nil, err
	})
	return &c
}

// work has the worker of a claim do what a kubelet would report.
func (p *peer) work(claim string, phase corev1.PodPhase, report *task.Report) {
	p.Helper()
	var w corev1.Pod
	eventually(p.T, "the worker of "+claim, func() (bool, error) {
		err := p.kube.Get(p.Context(), client.ObjectKey{Namespace: team, Name: "importer-" + claim}, &w)
		return err == nil, err
	})
	before := w.DeepCopy()
	w.Status.Phase = phase
	ran := corev1.ContainerStatus{Name: w.Spec.Containers[0].Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	if report != nil {
		text, err := json.Marshal(report)
		must(p.T, err)
		ended := &corev1.ContainerStateTerminated{Message: string(text), FinishedAt: metav1.NewTime(time.Now().Add(time.Hour))} // so long is nothing tried again
		if phase == corev1.PodFailed {
			ended.ExitCode = 1
		}
		ran.State = corev1.ContainerState{Terminated: ended}
	}
	w.Status.ContainerStatuses = []corev1.ContainerStatus{ran}
	must(p.T, p.kube.Status().Patch(p.Context(), &w, client.MergeFrom(before))) // other writers to the pod
}

// TestReadByVirtController: at each step of a volume, KubeVirt's virt-controller reads what it acts rightly on.
func TestReadByVirtController(t *testing.T) {
	p := newPeer(t)
	defer p.start()()
	done := &task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed}

	p.template("root", "late", nil)
	p.reads("root", stock{Waits: true, Bound: corev1.ConditionFalse})
	p.bind(p.claim("root"))
	p.reads("root", stock{Bound: corev1.ConditionTrue})
	p.work("root", corev1.PodRunning, nil)
	p.reads("root", stock{Bound: corev1.ConditionTrue})
	p.work("root", corev1.PodFailed, &task.Report{Version: task.Version, Outcome: task.Retry, Reason: task.SourceUnavailable, Detail: "the server said 500"})
	p.reads("root", stock{Bound: corev1.ConditionTrue, Broken: true})

	p.template("good", "soon", nil)
	p.bind(p.claim("good"))
	p.work("good", corev1.PodSucceeded, done)
	p.reads("good", stock{Ready: true, Populated: true, Bound: corev1.ConditionTrue})

	// A restore: the claim comes out of a snapshot, and says which volume it is for; the volume says that its claim is there.
	back := object(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: back, namespace: team, annotations: {cdi.kubevirt.io/storage.populatedFor: back,
		restore.kubevirt.io/name: back}}, spec: {accessModes: [ReadWriteOnce], storageClassName: late, resources: {requests: {storage: 1Gi}}}}`)
	p.create(back)
	p.template("back", "late", map[string]string{"cdi.kubevirt.io/storage.prePopulated": "true", "restore.kubevirt.io/name": "back"})
	eventually(t, "the restored volume, unbound, to be one that a machine starts with", func() (bool, error) {
		phase := p.get("back").Status.Phase
		return phase == cdiv1.Succeeded || phase == cdiv1.WaitForFirstConsumer || phase == cdiv1.PendingPopulation, fmt.Errorf("%s", phase)
	})
	p.bind(p.claim("back"))
	p.reads("back", stock{Ready: true, Populated: true, Bound: corev1.ConditionTrue})
	var workers corev1.PodList
	must(t, p.kube.List(t.Context(), &workers, client.InNamespace(team)))
	for i := range workers.Items {
		if workers.Items[i].Name == "importer-back" {
			t.Error("what came out of a snapshot is written over")
		}
	}
}
