package backup

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	"github.com/berth-vm/berth/internal/decide/backup"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
)

// In mode Pull nothing is written: a worker serves the disks to clients, until the backup is deleted or its time is up. If clients have fetched
// everything that its map names, the backup is complete, and the next one is made on it. Otherwise the next one is made on the one before, and has more.

// expiry is when the time is up in which clients can fetch the backup.
func (s *seen) expiry() time.Time { return s.of.CreationTimestamp.Add(s.of.Spec.TTL()) }

// lastAnswer is how long a server is asked for what was fetched, after the backup is to end. What it said before may be a moment old.
const lastAnswer = 10 * time.Second

// fetched finds out what clients have fetched.
func (r *Reconciler) fetched(ctx context.Context, s *seen) backup.Fetched {
	if s.working() != backup.Serving {
		return backup.NotAll
	}
	if p := r.progress.Progress(ctx, s.worker); p != nil && p.Stage == task.Finished {
		return backup.All
	}
	ends := s.expiry()
	if s.of.DeletionTimestamp != nil {
		ends = s.of.DeletionTimestamp.Time
	}
	if s.now.Before(ends.Add(lastAnswer)) {
		return backup.Unknown
	}
	return backup.NotAll
}

// startServer makes the server of the disks, after what it reads. Its keys are made again until there is a server that has them.
func (r *Reconciler) startServer(ctx context.Context, s *seen, h held, b render.Backup) error {
	if h.Incremental = h.Incremental && s.full() == ""; h.Incremental {
		b.Task.Bitmap, h.Since = launcherapi.BackupBitmap, checkpointOf(s.tracker).Name
	} else if full := s.full(); full != "" {
		h.Full = full
	}
	host := render.BackupHost(s.of.Namespace, s.of.Name)
	keys, ca, err := pki.ForServer("berth-backup", []string{host, host + ".cluster.local"}, s.now, keysLast)
	if err != nil {
		return err
	}
	err = r.cluster.Replace(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.of.Namespace, Name: serverKeysName(s.of), Labels: render.Labels(render.RoleBackup),
			OwnerReferences: []metav1.OwnerReference{s.owner()}},
		Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: keys.Certificate, corev1.TLSPrivateKeyKey: keys.Key},
	})
	if err != nil {
		return err
	}
	if err := r.cluster.Create(ctx, s.render().Service()); err != nil {
		return err
	}
	b.Served = render.Served{Keys: serverKeysName(s.of), Token: s.of.Spec.TokenSecretRef, CA: ca}
	return r.makeWorker(ctx, s, h, b)
}

// offer writes down what clients need: what kind of backup it is and, while it can be fetched, where.
func (s *seen) offer(next *backupv1.VirtualMachineBackupStatus, reason state.BackupReason) {
	next.EndpointCert = nil
	if s.held != nil {
		next.Type = backupv1.Full
		if s.held.Incremental {
			next.Type = backupv1.Incremental
		}
	}
	if reason == state.BackupServing {
		next.EndpointCert = ptr.To(s.worker.Annotations[render.AnnExportCA])
	}
	for i := range next.IncludedVolumes {
		v := &next.IncludedVolumes[i]
		if v.DataEndpoint, v.MapEndpoint = "", ""; reason != state.BackupServing {
			continue
		}
		disk := fmt.Sprintf("https://%s/exports/%s", render.BackupHost(s.of.Namespace, s.of.Name), v.VolumeName)
		v.DataEndpoint, v.MapEndpoint = disk+"/data", disk+"/map"
	}
}

// offered says what clients can fetch, and until when.
func (s *seen) offered() string {
	if s.fetched == backup.All {
		return s.what() + "; everything was fetched: delete the backup"
	}
	return fmt.Sprintf("%s; until %s", s.what(), s.expiry().UTC().Format(time.RFC3339))
}

// what says what clients can fetch.
func (s *seen) what() string {
	switch {
	case s.held.Incremental:
		return "what changed since checkpoint " + s.held.Since
	case s.held.Full != "":
		return "all data, because " + s.held.Full
	}
	return "all data"
}
