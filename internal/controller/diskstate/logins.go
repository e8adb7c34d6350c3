package diskstate

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// ServersOf returns the recorded addresses where a launcher has logged in for a volume; nil if nothing is recorded. A volume of the same name that
// names another disk than the launcher was started with has none.
func ServersOf(launcher *corev1.Pod, v kubevirt.Volume) []string {
	m, ok := launcherpod.ReadMachine(launcher)
	same := func(had kubevirt.Volume) bool {
		return had.Name == v.Name && equality.Semantic.DeepEqual(had.VolumeSource, v.VolumeSource)
	}
	var out map[string][]string
	if !ok || !slices.ContainsFunc(m.Spec.Volumes, same) || json.Unmarshal([]byte(launcher.Annotations[render.AnnServers]), &out) != nil {
		return nil
	}
	return out[v.Name]
}

// LogInAwaited reports whether the addresses where the launcher has logged in are not recorded yet. Before there is a launcher, they never are. Launchers of earlier
// versions, and those that a guest comes to, do not say.
func (s *Run) LogInAwaited() bool {
	if s.Launcher == nil {
		return true
	}
	m, ok := launcherpod.ReadMachine(s.Launcher)
	return ok && m.LogIn && s.Launcher.Annotations[render.AnnServers] == "" && s.Launcher.Annotations[render.AnnGo] != "yes"
}
