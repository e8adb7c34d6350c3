//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

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
