//go:build e2e

package machine

import (
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// record watches a machine's volumes and pods and notes each step when it is first seen. The returned function waits for the last step, which
// others may have seen sooner, stops, and says what was seen, in order.
func record(y *fixture.Machines, vm *kubevirt.VirtualMachine) func(last string) []string {
	y.T.Helper()
	ctx, cancel := context.WithCancel(y.Context())
	var mu sync.Mutex
	var seen []string
	note := func(step string) {
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(seen, step) {
			seen = append(seen, step)
		}
	}
	in := client.InNamespace(y.Namespace)
	var wg sync.WaitGroup
	for _, w := range []struct {
		list client.ObjectList
		see  func(watch.Event)
	}{
		{&cdiv1.DataVolumeList{}, func(e watch.Event) { noteVolume(e, vm.Name+"-root", note) }},
		{&corev1.PodList{}, notePods(note)},
	} {
		events, err := y.Kube.Watch(ctx, w.list, in)
		if err != nil {
			y.T.Fatal(err)
		}
		wg.Go(func() {
			for e := range events.ResultChan() {
				w.see(e)
			}
		})
	}
	return func(last string) []string {
		y.T.Helper()
		y.Wait("the step "+last+" to be seen", fixture.Patience, func(context.Context) (bool, string) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(seen, last), strings.Join(seen, ", ")
		})
		cancel()
		wg.Wait()
		return seen
	}
}

func noteVolume(e watch.Event, name string, note func(string)) {
	v, ok := e.Object.(*cdiv1.DataVolume)
	if !ok || v.Name != name {
		return
	}
	note("volume made")
	if step, ok := steps[v.Status.Phase]; ok {
		note(step)
	}
}

// steps are the phases of a volume that are steps of its machine.
var steps = map[cdiv1.DataVolumePhase]string{
	cdiv1.WaitForFirstConsumer: "held", cdiv1.ImportScheduled: "import scheduled", cdiv1.Succeeded: "filled",
}

// extras are the events that must not be seen.
var extras = []string{"another consumer", "another launcher", "worker before the consumer"}

func notePods(note func(string)) func(watch.Event) {
	made := map[bool]types.UID{} // by whether it is a consumer
	return func(e watch.Event) {
		p, ok := e.Object.(*corev1.Pod)
		if ok && p.Labels["cdi.kubevirt.io"] != "" && made[true] == "" {
			note("worker before the consumer")
		}
		if !ok || p.Labels["kubevirt.io"] != "virt-launcher" {
			return
		}
		_, consumer := p.Annotations[fixture.ConsumerMark]
		if made[consumer] != "" && made[consumer] != p.UID {
			note(map[bool]string{true: "another consumer", false: "another launcher"}[consumer])
		}
		made[consumer] = p.UID
		notePod(e.Type, p, consumer, note)
	}
}

func notePod(kind watch.EventType, p *corev1.Pod, consumer bool, note func(string)) {
	switch {
	case consumer && kind == watch.Deleted:
		note("consumer gone")
	case consumer:
		note("consumer made")
	default:
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				note("guest runs")
			}
		}
	}
}
