package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/launcherexec"
)

// TestOutdated: after an upgrade a guest runs on as it is, and its instance says that it is of the version before, until it runs in the
// image that a new one would.
func TestOutdated(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways})
	w.settle()
	launcher := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: launcherexec.Container, Image: "launcher:1"}}}}
	for _, c := range []struct {
		image string
		want  bool
	}{{"launcher:1", false}, {"launcher:2", true}, {"launcher:2", true}, {"launcher:1", false}} {
		w.r.Read.Options.Image = c.image
		if err := w.r.Instance.MarkOutdated(t.Context(), &observed.Instance{Run: diskstate.Run{Object: w.instance(), Launcher: launcher}}); err != nil {
			t.Fatal(err)
		}
		if _, got := w.instance().Labels[kubevirt.LabelOutdated]; got != c.want {
			t.Errorf("%s runs where a new one would be %s: called outdated %t, want %t", launcher.Spec.Containers[0].Image, c.image, got, c.want)
		}
	}
}
