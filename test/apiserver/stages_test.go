//go:build apiserver

package apiserver

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/task"
)

// TestImportInStages: a DataVolume is Paused between its stages, and says on its claim which it is at; stages are added to it while it is there.
func TestImportInStages(t *testing.T) {
	p := newPeer(t)
	defer p.start()()
	done := &task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed}
	p.create(object(`{kind: DataVolume, metadata: {name: staged, namespace: team}, spec: {source: {http: {url: "http://images.example.com/disks/"}},
		checkpoints: [{previous: "", current: full}],
		storage: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, storageClassName: soon, resources: {requests: {storage: 1Gi}}}}}`))
	p.bind(p.claim("staged"))
	p.work("staged", corev1.PodSucceeded, done)
	eventually(t, "the first stage to be complete", func() (bool, error) {
		c, phase := p.claim("staged"), p.get("staged").Status.Phase
		worker := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "importer-staged"}}
		var err error
		if phase == cdiv1.Paused { // as a kubelet does once it is told to stop one that has ended
			err = p.kube.Delete(t.Context(), &worker, client.GracePeriodSeconds(0))
		}
		at, previous := c.Annotations["cdi.kubevirt.io/storage.checkpoint.current"], c.Annotations["cdi.kubevirt.io/storage.checkpoint.previous"]
		return phase == cdiv1.Paused && at == "full" && previous == "" && apierrors.IsNotFound(err), fmt.Errorf("%s at %q, %w", phase, at, err)
	})
	eventually(t, "the event ImportPaused", func() (bool, error) {
		var events corev1.EventList
		err := p.kube.List(t.Context(), &events, client.InNamespace(team))
		for _, e := range events.Items {
			if e.Reason == "ImportPaused" && strings.HasPrefix(e.Message, "Multistage import into PVC staged is paused") {
				return true, nil
			}
		}
		return false, err
	})
	must(t, p.kube.Patch(t.Context(), p.get("staged"), stages(`{"previous": "", "current": "full"}, {"previous": "full", "current": "one"}`, true)))
	p.work("staged", corev1.PodSucceeded, done)
	eventually(t, "the volume to be complete", func() (bool, error) {
		phase, c := p.get("staged").Status.Phase, p.claim("staged")
		return phase == cdiv1.Succeeded && c.Annotations["cdi.kubevirt.io/storage.checkpoint.done"] == "true", fmt.Errorf("%s", phase)
	})
}

func stages(list string, final bool) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec": {"checkpoints": [%s], "finalCheckpoint": %v}}`, list, final))
}

// TestStagesInTheirOrder: admission takes the stages of an import as they are added, and refuses one that was made on another.
func TestStagesInTheirOrder(t *testing.T) {
	alice := users["alice"]
	v := object(`{kind: DataVolume, metadata: {name: staged, namespace: team}, spec: {source: {http: {url: "http://images.example.com/disks/"}},
		checkpoints: [{previous: "", current: full}], storage: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}`)
	must(t, alice.Create(t.Context(), v))
	t.Cleanup(func() { must(t, admin.Delete(context.Background(), v)) })
	add := func(list string, final bool) error {
		return alice.Patch(t.Context(), v.DeepCopyObject().(client.Object), stages(list, final))
	}
	if err := add(`{"previous": "", "current": "full"}, {"previous": "other", "current": "one"}`, false); err == nil || !strings.Contains(err.Error(), "what changed since") {
		t.Errorf("a stage out of order: %v", err)
	}
	must(t, add(`{"previous": "", "current": "full"}, {"previous": "full", "current": "one"}`, true))
	source := func(previous string) client.Object {
		return object(fmt.Sprintf(`{kind: VolumeImportSource, metadata: {name: staged, namespace: team}, spec: {source: {s3: {url: "s3://bucket/disks"}},
			targetClaim: one, checkpoints: [{previous: "", current: full}, {previous: %s, current: one}], finalCheckpoint: false}}`, previous))
	}
	must(t, alice.Create(t.Context(), source("full"), client.DryRunAll))
	if err := alice.Create(t.Context(), source("other"), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "what changed since") {
		t.Errorf("a source with a stage out of order: %v", err)
	}
}
