package render

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-vm/berth/internal/task"
)

// RoleBackupRemoval is the role of the worker that removes backups from a claim.
const RoleBackupRemoval = "backup-removal"

// Removal is everything that the worker is made of that removes backups of one machine.
type Removal struct {
	Name, Namespace string
	Machine         types.UID
	Owner           metav1.OwnerReference
	Claim           *corev1.PersistentVolumeClaim
	Task            task.RemoveBackups
	Settings        Settings
}

// Pod is the worker. It has the claim, and no network peer, key or token.
func (r Removal) Pod() (*corev1.Pod, error) {
	r.Task.Version = task.Version
	return Worker{
		Name: r.Name, Namespace: r.Namespace, Role: RoleBackupRemoval, Owner: r.Owner, VolumeUID: r.Machine, ClaimUID: r.Claim.UID, Command: "remove-backups",
		Task: r.Task, Target: &Disk{Claim: r.Claim.Name}, Settings: r.Settings,
	}.Pod()
}
