package render

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-vm/berth/internal/task"
)

// RoleBackup is the role of the worker of a backup.
const RoleBackup = "virt-backup"

// AnnMoment is on the worker of a backup: what the launcher holds for it.
const AnnMoment = "berth.dev/moment"

// BackupWorker is the name of the worker of a backup.
func BackupWorker(backup string) string { return hostname("virt-backup-" + backup) }

// BackupCheckpoint is the name that a backup has in its set, and the moment that it is of: what is deleted and made again has another.
func BackupCheckpoint(backup string, uid types.UID) string {
	return strings.TrimRight(backup[:min(len(backup), longestCheckpoint)], "-.") + "-" + string(uid[:min(8, len(uid))])
}

// longestCheckpoint leaves room in the name of a file.
const longestCheckpoint = 180

// BackupSet is the directory of a machine's backups in a claim.
func BackupSet(machine string) string { return path.Join(TargetDir, machine) }

// Backup holds all inputs of the worker of a backup.
type Backup struct {
	Name, Namespace string // of the backup
	UID             types.UID
	Owner           metav1.OwnerReference
	Claim           *corev1.PersistentVolumeClaim // nil: clients fetch it
	Keys            string                        // Secret; of a machine that does not run, there is none
	// Disks are the disks of a machine that does not run, by the names that the task has for them.
	Disks    map[string]Disk
	Task     task.BackUp
	Moment   string
	Served   Served // if clients fetch it
	Settings Settings
}

// Served is what the server of a backup needs: two Secrets, and the authority that its clients trust.
type Served struct{ Keys, Token, CA string }

// serverKeys is where the server of a backup has its own keys; those at TLSDir are for the launcher.
const serverKeys = "/var/run/berth/server"

// Pod is the worker.
func (b Backup) Pod() (*corev1.Pod, error) {
	b.Task.Version = task.Version
	w := Worker{
		Name: BackupWorker(b.Name), Namespace: b.Namespace, Role: RoleBackup, Owner: b.Owner, VolumeUID: b.UID, ClaimUID: b.UID, Command: backupVerb,
		Annotations: map[string]string{AnnMoment: b.Moment}, Settings: b.Settings,
	}
	if b.Keys != "" {
		b.Task.TLSDir, w.Secrets = TLSDir, []Secret{{Name: b.Keys, Dir: TLSDir}}
	}
	if b.Claim != nil {
		w.Target, w.ClaimUID = &Disk{Claim: b.Claim.Name}, b.Claim.UID
	} else {
		b.serve(&w)
	}
	var disks []Disk
	for _, name := range b.Task.Disks {
		if d, ok := b.Disks[name]; ok {
			if b.Task.Files == nil {
				b.Task.Files = map[string]string{}
			}
			dir, device := volumePlace(len(disks))
			b.Task.Files[name] = d.path(dir, device, task.Disk)
			disks = append(disks, d)
		}
	}
	w.Task = b.Task
	pod, err := w.Pod()
	if err != nil {
		return nil, err
	}
	addVolumes(pod, disks)
	if len(disks) > 0 {
		holdsDisks(pod)
	}
	return pod, nil
}

// serve has the worker serve the disks.
func (b *Backup) serve(w *Worker) {
	b.Task.Serve = &task.ServeBackup{Listen: fmt.Sprintf(":%d", ExportPort), TLSDir: serverKeys, TokenDir: exportTokens}
	w.Listen, w.Annotations[AnnExportCA] = ExportPort, b.Served.CA
	w.Secrets = append(w.Secrets, Secret{Name: b.Served.Keys, Dir: serverKeys}, Secret{Name: b.Served.Token, Dir: exportTokens})
}

// Service leads to the server.
func (b Backup) Service() *corev1.Service {
	return serviceTo(RoleBackup, b.UID, metav1.ObjectMeta{Namespace: b.Namespace, Name: BackupWorker(b.Name), OwnerReferences: []metav1.OwnerReference{b.Owner}})
}

// BackupHost is the name of the server in the cluster, which its certificate is for.
func BackupHost(namespace, backup string) string {
	return BackupWorker(backup) + "." + namespace + ".svc"
}
