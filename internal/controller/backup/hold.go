package backup

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
)

const (
	annTask    = render.AnnTask
	labelClaim = render.LabelClaimUID
)

// hold has the launcher hold the disks, and makes the worker. It is told again until there is a worker: it holds one moment for one backup, and
// takes the keys of the last order.
func (r *Reconciler) hold(ctx context.Context, s *seen) error {
	m, err := r.guests.Order(s.launcher, Question{Launcher: s.launcher.UID, Backup: s.of.UID}, func(ctx context.Context) (launcherapi.BackupOrder, error) {
		return r.order(ctx, s)
	}, r.comeBack(s.of))
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		return &instead{state.BackupFailed, refused.Why[:min(len(refused.Why), mostWords)]}
	case err != nil:
		return err
	case m.Busy != "":
		return r.busy(ctx, s, m.Busy)
	case m.Later != "":
		return &instead{state.BackupUnsteady, m.Later[:min(len(m.Later), mostWords)]}
	case m.Broken != "":
		return &instead{state.BackupFailed, m.Broken[:min(len(m.Broken), mostWords)]}
	}
	if m, err = s.believed(m); err != nil {
		return &instead{state.BackupFailed, err.Error()}
	}
	return r.startWorker(ctx, s, m)
}

// mostWords is the most that is kept of a launcher's words: they end up in an annotation and a status.
const mostWords = 1 << 10

// believed returns a launcher's answer as far as it can be: a guest that broke out of QEMU writes it.
func (s *seen) believed(m launcherapi.BackupMoment) (launcherapi.BackupMoment, error) {
	for i, d := range m.Disks {
		if len(m.Disks) != len(s.volumes) || d.Volume != s.volumes[i] || len(d.Target) > maxTarget {
			return m, fmt.Errorf("its launcher answers for other disks than %s", strings.Join(s.volumes, ", "))
		}
	}
	if len(m.Disks) == 0 || m.Moment == "" || len(m.Moment) > mostWords || m.Port <= 0 || m.Port > 1<<16-1 {
		return m, errors.New("its launcher's answer makes no sense")
	}
	m.Full, m.Unquiesced = m.Full[:min(len(m.Full), mostWords)], m.Unquiesced[:min(len(m.Unquiesced), mostWords)]
	return m, nil
}

// maxTarget bounds the name of a device, such as vda.
const maxTarget = 32

// busy is said while the launcher holds the disks for another backup. One that is gone is given up.
func (r *Reconciler) busy(ctx context.Context, s *seen, other string) error {
	var all backupv1.VirtualMachineBackupList
	if err := r.live.List(ctx, &all, client.InNamespace(s.of.Namespace)); err != nil {
		return fmt.Errorf("look for backup %s: %w", other, err)
	}
	for i := range all.Items {
		if o := &all.Items[i]; string(o.UID) == other && !o.Over() {
			return &instead{state.BackupTurn, o.Name}
		}
	}
	lost := *s
	lost.of = s.of.DeepCopy()
	lost.of.UID = types.UID(other)
	if _, err := r.end(&lost, false); err != nil {
		return err
	}
	return cluster.ErrStale
}

// order makes the keys of a backup, and what the launcher is told. The worker's keys are in a Secret, which is made again with every order.
func (r *Reconciler) order(ctx context.Context, s *seen) (launcherapi.BackupOrder, error) {
	// A stale cache without the worker would make the launcher trust keys that the worker does not have.
	now, err := cluster.Owned[corev1.Pod](ctx, r.live, s.of.UID, s.of.Namespace, render.BackupWorker(s.of.Name))
	if err != nil {
		return launcherapi.BackupOrder{}, err
	} else if now != nil {
		return launcherapi.BackupOrder{}, cluster.ErrStale
	}
	o := launcherapi.BackupOrder{ID: string(s.of.UID), Volumes: s.volumes, Quiesce: !s.of.Spec.SkipQuiesce, Room: roomOf(s.launcher)}
	if s.tracker != nil {
		o.Tracker, o.Checkpoint = string(s.tracker.UID), checkpointName(s.of)
		if s.full() == "" {
			o.Since = checkpointOf(s.tracker).recorded()
		}
	}
	return o, r.makeKeys(ctx, s, &o)
}

// roomOf returns how much the launcher may put on its node's disk; 0: no limit is set. The kubelet ends a pod that goes beyond its own.
func roomOf(launcher *corev1.Pod) int64 {
	for _, c := range launcher.Spec.Containers {
		if limit := c.Resources.Limits.StorageEphemeral(); c.Name == launcherapi.Container && !limit.IsZero() {
			return limit.Value()
		}
	}
	return 0
}

// full returns why the backup must contain all data, as far as that is known before the launcher is asked. It is empty if an increment is enough.
func (s *seen) full() string {
	last := checkpointOf(s.tracker)
	switch {
	case s.tracker == nil:
		return ""
	case last == nil:
		return fmt.Sprintf("it is the first backup of tracker %s", s.tracker.Name)
	case s.of.Spec.ForceFullBackup:
		return "forceFullBackup is set"
	case last.Machine != string(s.vm.UID):
		return fmt.Sprintf("the last backup of tracker %s is of an earlier machine of that name", s.tracker.Name)
	case s.of.Spec.Pulled() && last.Claim != "":
		return fmt.Sprintf("the last backup of tracker %s was written into a claim", s.tracker.Name)
	case !s.of.Spec.Pulled() && last.Claim == "":
		return fmt.Sprintf("the last backup of tracker %s was fetched, and is in no claim", s.tracker.Name)
	case !s.of.Spec.Pulled() && last.Claim != string(s.claim.UID):
		return fmt.Sprintf("the last backup of tracker %s is in another claim", s.tracker.Name)
	case s.shared != "":
		return fmt.Sprintf("disk %s is shareable: what other machines write to it is not recorded", s.shared)
	}
	return ""
}

// keysLast is how long the keys of a backup are good for: as long as it may take.
const keysLast = 30 * 24 * time.Hour

func (r *Reconciler) makeKeys(ctx context.Context, s *seen, o *launcherapi.BackupOrder) error {
	authority, err := pki.New("berth-backup", s.now, keysLast)
	if err != nil {
		return err
	}
	server, err := authority.Issue(pki.Leaf{Name: launcherapi.BackupServer, DNSNames: []string{launcherapi.BackupServer}, Use: x509.ExtKeyUsageServerAuth, Lasts: keysLast}, s.now)
	if err != nil {
		return err
	}
	worker, err := authority.Issue(pki.Leaf{Name: launcherapi.BackupClient, Use: x509.ExtKeyUsageClientAuth, Lasts: keysLast}, s.now)
	if err != nil {
		return err
	}
	ca := pki.PEM(authority.Certificate().Raw)
	o.Certificate, o.Key, o.Clients = string(server.Certificate), string(server.Key), string(ca)
	return r.cluster.Replace(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.of.Namespace, Name: keysName(s.of), Labels: render.Labels(render.RoleBackup),
			OwnerReferences: []metav1.OwnerReference{s.owner()}},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: worker.Certificate, corev1.TLSPrivateKeyKey: worker.Key, "ca.crt": ca},
	})
}

func (s *seen) owner() metav1.OwnerReference {
	return *metav1.NewControllerRef(s.of, backupv1.GroupVersion.WithKind("VirtualMachineBackup"))
}

// startWorker makes the worker that reads what the launcher holds.
func (r *Reconciler) startWorker(ctx context.Context, s *seen, m launcherapi.BackupMoment) error {
	t := task.BackUp{Address: net.JoinHostPort(s.launcher.Status.PodIP, strconv.Itoa(m.Port)), Server: launcherapi.BackupServer}
	if s.of.Spec.Pulled() {
		return r.startServer(ctx, s, held{Launcher: s.launcher.UID, BackupMoment: m}, render.Backup{Keys: keysName(s.of), Task: t})
	}
	if m.Incremental && s.full() == "" {
		last := checkpointOf(s.tracker)
		t.Bitmap, t.Parent, t.Proof = launcherapi.BackupBitmap, last.Name, last.Manifest
	} else {
		s.compare(&t, m.Full)
	}
	return r.makeWorker(ctx, s, held{Launcher: s.launcher.UID, BackupMoment: m}, render.Backup{Keys: keysName(s.of), Task: t})
}

// makeWorker makes a worker of what is known about how it reads the disks.
func (r *Reconciler) makeWorker(ctx context.Context, s *seen, h held, b render.Backup) error {
	settings, err := r.settings.Settings(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("write what is held: %w", err)
	}
	to := s.render()
	b.Name, b.Namespace, b.UID, b.Owner, b.Claim = to.Name, to.Namespace, to.UID, to.Owner, s.claim
	b.Moment, b.Settings = string(text), settings.Pod(r.image)
	t := &b.Task
	t.Machine, t.Set, t.Checkpoint = s.vm.Namespace+"/"+s.vm.Name, render.BackupSet(s.vm.Name), checkpointName(s.of)
	t.Moment, t.Created, t.Disks = h.Moment, h.Time, s.volumes
	if t.Object, err = machineOf(s.vm); err != nil {
		return err
	}
	pod, err := b.Pod()
	if err != nil {
		return err
	}
	var claims []*corev1.PersistentVolumeClaim
	if s.claim != nil {
		claims = append(claims, s.claim)
	}
	for _, d := range s.stopped {
		claims = append(claims, d.claim)
	}
	if err := nodeselect.FollowClaims(ctx, r.reader, pod, claims...); err != nil {
		return err
	}
	return r.cluster.Create(ctx, pod)
}

// render returns what names everything that is made for the backup.
func (s *seen) render() render.Backup {
	return render.Backup{Name: s.of.Name, Namespace: s.of.Namespace, UID: s.of.UID, Owner: s.owner()}
}

// machineOf is the machine as it is written into the backup: enough to make it again.
func machineOf(vm *kubevirt.VirtualMachine) (json.RawMessage, error) {
	next := &kubevirt.VirtualMachine{TypeMeta: metav1.TypeMeta{APIVersion: kubevirt.GroupVersion.String(), Kind: "VirtualMachine"}, Spec: vm.Spec}
	next.Namespace, next.Name, next.UID, next.Labels, next.Annotations = vm.Namespace, vm.Name, vm.UID, vm.Labels, vm.Annotations
	text, err := json.Marshal(next)
	if err != nil {
		return nil, fmt.Errorf("write the machine: %w", err)
	}
	return text, nil
}

// trouble returns why the worker does not start, as far as its pod says it.
func trouble(p *corev1.Pod) string {
	if out, why := pods.Unplaceable(p); out {
		return why
	}
	_, why := pods.Waiting(p)
	return why
}
