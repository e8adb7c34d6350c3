package diskstate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/render"
)

// isMover reports whether the pod stands for a machine whose disks are being copied. A forged pod only changes a message.
func isMover(p *corev1.Pod) bool {
	o := metav1.GetControllerOf(p)
	return o != nil && o.Kind == "VirtualMachineInstanceMigration" && p.Annotations[render.AnnConsumer] != ""
}
