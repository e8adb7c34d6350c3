package machine

import (
	"context"
	"strings"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/render"
)

// edit changes the machine's spec as a person does with kubectl apply: the API server counts that.
func edit(do func(*kubevirt.VirtualMachineInstanceSpec)) func(*world) {
	return func(w *world) {
		w.change(false, func(vm *kubevirt.VirtualMachine) {
			vm.Generation++
			do(&vm.Spec.Template.Spec)
		})
	}
}

// extraIn puts volume extra, of a claim, into the template, or takes it out.
func extraIn(claim string) func(*world) {
	return edit(func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Volumes, s.Domain.Devices.Disks = s.Volumes[:2], nil
		if claim != "" {
			source := &kubevirt.ClaimSource{Hotpluggable: true}
			source.ClaimName = claim
			s.Volumes = append(s.Volumes, kubevirt.Volume{Name: "extra", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: source}})
			s.Domain.Devices.Disks = []kubevirt.Disk{{Name: "extra"}}
		}
	})
}

// TestTemplateLoop: a running machine gets and loses the hotpluggable volumes of its template, whatever happens to the controller.
func TestTemplateLoop(t *testing.T) {
	running, up := kubevirt.StatusRunning, kubevirt.PhaseRunning
	stop, start := setStrategy(kubevirt.RunHalted), setStrategy(kubevirt.RunAlways)
	sc := func(name string, asks ...func(*world)) scenario {
		return scenario{name: name, strategy: kubevirt.RunAlways, status: running, phase: up, asks: append([]func(*world){boundClaim("a", "node1"), boundClaim("b", "node1")}, asks...)}
	}
	loop(t, []scenario{
		sc("added", extraIn("a")),
		sc("added and removed", extraIn("a"), extraIn("")),
		sc("added and in another claim", extraIn("a"), extraIn("b")),
		sc("added, kept over a start and in another claim", extraIn("a"), stop, start, extraIn("b")),
		sc("added, kept over a start and removed", extraIn("a"), stop, start, extraIn("")),
	})
}

// TestTemplateIsFollowed: what an instance has, and what its machine says of it.
func TestTemplateIsFollowed(t *testing.T) {
	w := newWorld(t, scenario{name: "follows", strategy: kubevirt.RunAlways})
	w.run()
	claims := func(what string, want ...string) {
		t.Helper()
		w.settle()
		var got []string
		for _, v := range w.instance().Spec.Volumes {
			name, _ := render.ClaimOf(v)
			got = append(got, name)
		}
		if strings.Join(got, " ") != strings.Join(append([]string{"web-root", "web-data"}, want...), " ") {
			t.Errorf("%s: the instance has %v", what, got)
		}
	}
	says := func(what, text string) {
		t.Helper()
		w.settle()
		got := ""
		for _, c := range w.vm().Status.Conditions {
			if c.Type == "RestartRequired" {
				got = c.Reason + ": " + c.Message
			}
		}
		if got == "" != (text == "") || !strings.Contains(got, text) {
			t.Errorf("%s: it says %q", what, got)
		}
	}
	says("at the start", "")
	boundClaim("a", "node1")(w)
	boundClaim("b", "node1")(w)
	extraIn("a")(w)
	claims("added", "a")
	says("added", "")
	extraIn("b")(w)
	claims("in another claim", "b")
	says("in another claim", "")
	extraIn("gone")(w)
	claims("in a claim that is not there", "b")
	says("in a claim that is not there", "VolumesUpdateNeedsRestart")
	boundClaim("gone", "node1")(w)
	claims("in a claim that came later", "gone")
	says("in a claim that came later", "")
	extraIn("b")(w)
	claims("in the claim of before", "b")
	w.change(false, func(vm *kubevirt.VirtualMachine) {
		vm.Generation++
		vm.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "none"}
	})
	says("of an instance type that is not there", "VirtualMachineClusterInstancetype none does not exist")
	w.change(false, func(vm *kubevirt.VirtualMachine) {
		vm.Generation++
		vm.Spec.Instancetype = nil
	})
	says("of no instance type", "")
	edit(func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.CPU = &kubevirt.CPU{Cores: 2} })(w)
	says("with more processors", "RestartRequired: a non-live-updatable field was changed in the template spec: domain.cpu; restart")
	extraIn("")(w)
	claims("removed")
	says("with more processors still", "domain.cpu;")
	edit(func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.CPU = nil })(w)
	says("with the processors it has", "")

	i := w.instance()
	i.Spec.Volumes = append(i.Spec.Volumes, kubevirt.Volume{Name: "alone", Hotpluggable: true, VolumeSource: kubevirt.VolumeSource{
		DataVolume: &kubevirt.DataVolumeSource{Name: "a", Hotpluggable: true}}})
	w.must(w.api.Update(context.Background(), i))
	edit(func(s *kubevirt.VirtualMachineInstanceSpec) { s.Hostname = "other" })(w)
	claims("with a disk that was added to the instance alone", "a")
	says("with another hostname", "hostname")
	if g := w.instance().Annotations[kubevirt.AnnGeneration]; g == observed.Generation(w.vm()) {
		t.Errorf("the instance is said to be as generation %s", g)
	}
}
