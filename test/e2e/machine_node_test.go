//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestMachineNodeStopped: a node goes away with one machine that runs there and one whose disk is being imported there.
// They say so, and both run when the node is back. It is not run beside other tests, which would lose their pods.
func TestMachineNodeStopped(t *testing.T) {
	y := newYard(t)
	nodes := y.ReadyNodes()
	node := nodes[len(nodes)-1]
	running := y.tiny("running", "local")
	importing := y.tiny("importing", "local")
	source := &importing.Spec.DataVolumeTemplates[0].Spec
	source.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: y.url}}
	source.Storage.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("300Mi")
	for _, vm := range []*kubevirt.VirtualMachine{running, importing} {
		vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		y.create(vm)
	}
	y.status(running, kubevirt.StatusRunning, boot)
	y.Wait("the import to have begun", boot, func(ctx context.Context) (bool, string) {
		var v cdiv1.DataVolume
		err := y.kube.Get(ctx, types.NamespacedName{Namespace: y.Namespace, Name: "importing-0"}, &v)
		return err == nil && v.Status.Phase == cdiv1.ImportInProgress, string(v.Status.Phase)
	})

	t.Cleanup(func() { framework.Kubebox(t, "node", "start", node) })
	framework.Kubebox(t, "node", "stop", node)
	y.status(running, kubevirt.StatusUnknown, boot)
	if !strings.Contains(why(running), node) {
		t.Errorf("the machine does not name the node that is gone: %s", why(running))
	}
	close(y.gate.open)
	framework.Kubebox(t, "node", "start", node)
	y.status(running, kubevirt.StatusRunning, boot)
	y.status(importing, kubevirt.StatusRunning, boot)
}

// chaosVariable names how long the controllers are killed; CI has less time than a night.
const chaosVariable = "E2E_CHAOS"

// TestMachineControllerKilled kills the controllers at random while machines are made and deleted. When it stops, what is
// to run runs, and of what was deleted nothing is left. It is not run beside other tests, which it would slow down.
func TestMachineControllerKilled(t *testing.T) {
	limit := time.Minute
	if text := os.Getenv(chaosVariable); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	y := newYard(t)
	alive := map[string]*kubevirt.VirtualMachine{}
	over := time.NewTimer(limit)
	step := time.NewTicker(2 * time.Second)
	defer step.Stop()
	kills, made := 0, 0
	for done := false; !done; {
		switch n := rand.IntN(6); {
		case n < 2:
			kills += y.killController()
		case n < 5 && len(alive) < 6:
			vm := y.tiny(fmt.Sprintf("machine-%d", made), "local", "localdisk")
			made++
			y.create(vm)
			alive[vm.Name] = vm
		default:
			for name, vm := range alive {
				if err := y.kube.Delete(t.Context(), vm); err != nil {
					t.Fatal(err)
				}
				delete(alive, name)
				break
			}
		}
		select {
		case <-step.C:
		case <-over.C:
			done = true
		}
	}
	t.Logf("%d machines were made and %d controllers killed; %d machines are to run", made, kills, len(alive))
	for _, vm := range alive {
		y.status(vm, kubevirt.StatusRunning, boot)
	}
	for _, vm := range alive {
		if err := y.kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	y.nothingLeft()
}

// killController kills one of the controllers, the leader or not, without letting it finish anything.
func (y *yard) killController() int {
	y.T.Helper()
	var list corev1.PodList
	err := y.kube.List(y.Context(), &list, client.InNamespace("berth"), client.MatchingLabels{"app.kubernetes.io/component": "controller"})
	if err != nil || len(list.Items) == 0 {
		return 0
	}
	pod := &list.Items[rand.IntN(len(list.Items))]
	err = y.Client.CoreV1().Pods("berth").Delete(y.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if err != nil {
		return 0
	}
	return 1
}
