package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// story narrates one machine's way. Every line is printed when it is first true, in the order of the steps.
type story struct {
	client client.WithWatch
	vm     *kubevirt.VirtualMachine
	start  time.Time
	out    io.Writer
	now    scene
}

// scene is what the page shows of the cluster at one moment.
type scene struct {
	volumes            []cdiv1.DataVolume
	claims             []corev1.PersistentVolumeClaim
	consumer, launcher *corev1.Pod
	status             kubevirt.VirtualMachineStatus
}

// step is one line of the story: a condition, and the text when it is true.
type step struct {
	number string
	when   func(scene) bool
	say    func(scene) string
}

func (s *story) tell(ctx context.Context) error {
	class := *s.vm.Spec.DataVolumeTemplates[0].Spec.Storage.StorageClassName
	var sc storagev1.StorageClass
	if err := s.client.Get(ctx, client.ObjectKey{Name: class}, &sc); err != nil {
		return fmt.Errorf("read class %s: %w", class, err)
	}
	s.line("1", fmt.Sprintf("class %s binds its claims at %s", class, *sc.VolumeBindingMode))
	if err := s.client.Create(ctx, s.vm); err != nil {
		return fmt.Errorf("create the machine: %w", err)
	}
	s.line("2", fmt.Sprintf("VirtualMachine %s created with %d DataVolume templates", s.vm.Name, len(s.vm.Spec.DataVolumeTemplates)))
	tick := time.NewTicker(100 * time.Millisecond) // the story is for eyes; nothing depends on it
	defer tick.Stop()
	for _, st := range s.steps() {
		for !st.when(s.now) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("step %s did not come about; the machine says: %s", st.number, why(s.now.status))
			}
			if err := s.look(ctx); err != nil {
				return err
			}
		}
		s.line(st.number, st.say(s.now))
	}
	return s.listen(ctx)
}

func why(status kubevirt.VirtualMachineStatus) string {
	for _, c := range status.Conditions {
		if c.Type == "Ready" {
			return string(status.PrintableStatus) + ": " + c.Message
		}
	}
	return string(status.PrintableStatus)
}

func (s *story) line(number, text string) {
	fmt.Fprintf(s.out, "%6.1fs  %s  %s\n", time.Since(s.start).Seconds(), number, text)
}

// steps returns the numbered steps of docs/flows/local-placement.md from the third on.
func (s *story) steps() []step {
	total := len(s.vm.Spec.DataVolumeTemplates)
	all := func(phases ...cdiv1.DataVolumePhase) func(scene) bool {
		return func(n scene) bool { return countIn(n.volumes, phases) == total }
	}
	begun := []cdiv1.DataVolumePhase{cdiv1.ImportScheduled, cdiv1.ImportInProgress, cdiv1.Succeeded}
	held := append([]cdiv1.DataVolumePhase{cdiv1.WaitForFirstConsumer}, begun...)
	return []step{
		{"3", func(n scene) bool { return len(n.volumes) == total },
			func(n scene) string { return "DataVolumes created: " + names(n.volumes) }},
		{"4", all(held...), func(scene) string { return "their claims are held: WaitForFirstConsumer, no worker runs" }},
		{"5", func(n scene) bool { return n.consumer != nil || n.launcher != nil },
			func(n scene) string {
				if n.consumer == nil {
					return "a consumer pod with all the claims came and went"
				}
				return "consumer pod " + n.consumer.Name + " with all the claims and the machine's constraints"
			}},
		{"6", func(n scene) bool { return bound(n.claims) == total && node(n) != "" },
			func(n scene) string { return "the scheduler chose " + node(n) + "; every claim is bound there" }},
		{"7", all(begun...), func(scene) string { return "ImportScheduled: workers fill the disks on that node" }},
		{"8", func(n scene) bool { return n.consumer == nil },
			func(n scene) string {
				return "the consumer has handed its room to " + podName(n.launcher) + " and is gone"
			}},
		{"8", all(cdiv1.Succeeded), func(scene) string { return "Succeeded: the disks are filled" }},
		{"9", func(n scene) bool { return n.status.Ready },
			func(n scene) string { return "the launcher started the guest on " + node(n) }},
	}
}

func countIn(volumes []cdiv1.DataVolume, phases []cdiv1.DataVolumePhase) int {
	count := 0
	for _, v := range volumes {
		for _, p := range phases {
			if v.Status.Phase == p {
				count++
			}
		}
	}
	return count
}

func names(volumes []cdiv1.DataVolume) string {
	var out []string
	for _, v := range volumes {
		out = append(out, v.Name)
	}
	return strings.Join(out, ", ")
}

func bound(claims []corev1.PersistentVolumeClaim) int {
	count := 0
	for _, c := range claims {
		if c.Status.Phase == corev1.ClaimBound {
			count++
		}
	}
	return count
}

func node(n scene) string {
	for _, p := range []*corev1.Pod{n.consumer, n.launcher} {
		if p != nil && p.Spec.NodeName != "" {
			return p.Spec.NodeName
		}
	}
	return ""
}

func podName(p *corev1.Pod) string {
	if p == nil {
		return "the launcher"
	}
	return p.Name
}
