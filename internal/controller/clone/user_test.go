package clone

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestUserOf: only a pod that may be writing now keeps a clone waiting. One that itself waits for the clone never would end.
func TestUserOf(t *testing.T) {
	unbound := filltest.Bound(filltest.Team, "disk")
	unbound.Status.Phase = corev1.ClaimPending
	near, far := onNode("disk", "node1"), onNode("disk", "node2")
	pod := func(phase corev1.PodPhase, node string, claims ...string) *corev1.Pod {
		p := consumer(nil, claims...)
		p.Status.Phase, p.Spec.NodeName = phase, node
		return p
	}
	reading := pod(corev1.PodRunning, "node1", "golden")
	reading.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	labelled := pod(corev1.PodRunning, "node1", "golden")
	labelled.Labels = render.Labels(render.RoleServe)
	worker, err := render.Worker{Namespace: reading.Namespace, Name: "server", Role: render.RoleServe, Command: "serve", Source: &render.Disk{Claim: "golden"}}.Pod()
	if err != nil {
		t.Fatal(err)
	}
	worker.Status.Phase, worker.Spec.NodeName = corev1.PodRunning, "node1"
	for name, c := range map[string]struct {
		disk []client.Object // the clone's claim, if there is one
		pod  *corev1.Pod
		uses bool
	}{
		"runs":                            {pod: pod(corev1.PodRunning, "node1", "golden"), uses: true},
		"has ended":                       {pod: pod(corev1.PodSucceeded, "node1", "golden")},
		"has failed":                      {pod: pod(corev1.PodFailed, "node1", "golden")},
		"only reads":                      {pod: reading},
		"is a worker":                     {pod: worker},
		"says that it is a worker":        {pod: labelled, uses: true},
		"uses another":                    {pod: pod(corev1.PodRunning, "node1", "other")},
		"is starting":                     {pod: pod(corev1.PodPending, "node1", "golden"), uses: true},
		"has no node":                     {pod: pod(corev1.PodPending, "", "golden")},
		"waits for the clone to be made":  {pod: pod(corev1.PodPending, "", "golden", "disk")},
		"waits for the clone to be bound": {disk: []client.Object{unbound}, pod: pod(corev1.PodPending, "", "golden", "disk")},
		"was put on a node and waits for the clone to be bound": {
			disk: []client.Object{unbound}, pod: pod(corev1.PodPending, "node1", "golden", "disk")},
		"is about to be placed, for the clone is bound": {disk: near, pod: pod(corev1.PodPending, "", "golden", "disk"), uses: true},
		"can never be placed, for the clone is apart":   {disk: far, pod: pod(corev1.PodPending, "", "golden", "disk")},
		"starts beside the clone":                       {disk: near, pod: pod(corev1.PodPending, "node1", "golden", "disk"), uses: true},
		"waits for yet another claim":                   {disk: near, pod: pod(corev1.PodPending, "node1", "golden", "disk", "third")},
	} {
		t.Run(name, func(t *testing.T) {
			golden := onNode("golden", "node1")
			objects := append(append(golden, c.disk...), c.pod, node("node1"), node("node2"))
			w := filltest.New(t, filltest.Scene{Objects: objects})
			cloner, s := looking(t, w.API, w)
			target := Target{}
			if c.disk != nil {
				target.Claim = c.disk[0].(*corev1.PersistentVolumeClaim)
			}
			err := cloner.Observe(t.Context(), s, target)
			if err != nil || (s.user != "") != c.uses {
				t.Errorf("user %q, %v; want one: %t", s.user, err, c.uses)
			}
		})
	}
}
