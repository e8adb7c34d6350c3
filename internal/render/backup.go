package render

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// annSkipHooks on an instance keeps backup tools from freezing its guest, as upstream has it.
const annSkipHooks = "kubevirt.io/skip-backup-hooks"

// backupHooks tells Velero to freeze the guest's filesystems before it backs up the claims of its launcher, and to thaw them afterwards.
// The container is named: a pod that is changed by others has more than one.
func backupHooks(pod *corev1.Pod, i *kubevirt.VirtualMachineInstance) {
	if skip, _ := strconv.ParseBool(i.Annotations[annSkipHooks]); skip {
		return
	}
	for when, verb := range map[string]string{"pre": launcherapi.PreBackupVerb, "post": launcherapi.PostBackupVerb} {
		pod.Annotations[when+".hook.backup.velero.io/container"] = pod.Spec.Containers[0].Name
		pod.Annotations[when+".hook.backup.velero.io/command"] = fmt.Sprintf(`[%q, %q]`, "/usr/bin/launcher", verb)
	}
	pod.Annotations["pre.hook.backup.velero.io/timeout"] = "60s"
}
