package render

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// AnnEvacuate is on a launcher whose eviction was requested: its guest is to move. It is deleted with the pod.
const AnnEvacuate = "berth.dev/evacuate"

// EvacuationID returns the name of the request that a launcher's guest leaves its node; empty if there is none. Each request has
// another name.
func EvacuationID(launcher *corev1.Pod) string {
	if launcher == nil || launcher.Annotations[AnnEvacuate] == "" {
		return ""
	}
	return string(launcher.UID) + "/" + launcher.Annotations[AnnEvacuate]
}

// AnnStay is on a launcher whose drain migration was cancelled, and says when: the migration is not started again at once.
const AnnStay = "berth.dev/stay"

// Budget keeps a drain from ending a guest that has to be moved instead, whether or not our webhook answers. It allows no
// eviction of the instance's launchers, however many there are.
func Budget(i *kubevirt.VirtualMachineInstance) *policyv1.PodDisruptionBudget {
	uid := string(i.UID)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Name: fit("kubevirt-disruption-budget-" + i.Name + "-" + uid[:min(5, len(uid))]), Namespace: i.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(i, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(most)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{LabelMachine: "virt-launcher", LabelCreatedBy: uid}},
		},
	}
}
