package datavolume

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

const manifest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// backupIn is a disk of a backup in a claim.
func backupIn(claim string) *accessv1.VolumeBackupSource {
	return &accessv1.VolumeBackupSource{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "root"}, Spec: accessv1.VolumeBackupSourceSpec{
		Claim: &accessv1.BackupClaim{Name: claim, Path: "sets/web"}, Checkpoint: "b2", Volume: "root", Manifest: manifest}}
}

// backupAt is one at a server.
func backupAt(server *accessv1.BackupServer) *accessv1.VolumeBackupSource {
	b := backupIn("")
	b.Spec.Claim, b.Spec.HTTP = nil, server
	return b
}

// ofBackup is a volume that is filled with it.
func ofBackup() *cdiv1.DataVolume {
	v := newVolume(nil)
	v.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: accessv1.VolumeBackupSourceKind, Name: "root"}
	return v
}

// step reconciles the volume some times, and lets the cluster answer.
func step(w *filltest.World) {
	w.T.Helper()
	for range 8 {
		reconcileOnce(w)
		w.Turn()
	}
}

// start reconciles the volume until its worker is admitted, which then does nothing.
func start(w *filltest.World) {
	w.T.Helper()
	for range 8 {
		reconcileOnce(w)
		pod, _ := told(w)
		if pod == nil {
			w.Turn()
		} else if len(pod.Spec.SchedulingGates) == 0 {
			return
		}
	}
	w.T.Fatal("there is no worker that is admitted")
}

func reconcileOnce(w *filltest.World) {
	w.T.Helper()
	_, err := build(w).Reconcile(w.T.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(ofBackup())})
	w.Must(err)
}

func told(w *filltest.World) (*corev1.Pod, task.Task) {
	w.T.Helper()
	pod := filltest.Get[corev1.Pod](w, filltest.Team, "importer-"+volumeName)
	var t task.Task
	if pod != nil {
		w.Must(json.Unmarshal([]byte(pod.Annotations[render.AnnTask]), &t))
	}
	return pod, t
}

// TestDiskOfABackup: the worker has the claim with the backups to read from it, is told which disk of which backup it brings, and is recorded as a reader of
// that claim. A set at a server is read from there, with its Secrets.
func TestDiskOfABackup(t *testing.T) {
	w := filltest.New(t, filltest.Scene{Objects: append(filltest.BoundOn("backups", "node1"), filltest.Class(filltest.AtOnce), backupIn("backups"), ofBackup())})
	start(w)
	pod, got := told(w)
	want := task.Backup{Set: task.Source{Local: &task.Local{Path: render.SourceDir}}, Path: "sets/web", Checkpoint: "b2", Disk: "root", Manifest: manifest}
	if pod == nil || got.Source.Backup == nil || got.Source.Backup.Set.Local == nil || *got.Source.Backup.Set.Local != *want.Set.Local ||
		got.Source.Backup.Path != want.Path || got.Source.Backup.Checkpoint != "b2" || got.Source.Backup.Disk != "root" || got.Source.Backup.Manifest != manifest {
		t.Fatalf("the worker is told %+v", got.Source.Backup)
	}
	if !render.OnlyReads(pod, "backups") || render.OnlyReads(pod, volumeName) {
		t.Errorf("the worker mounts %+v", pod.Spec.Containers[0].VolumeMounts)
	}
	var disks accessv1.DiskAccessList
	w.Must(w.API.List(t.Context(), &disks))
	modes := map[accessv1.Mode]int{}
	for _, d := range disks.Items {
		for _, h := range d.Spec.Holders {
			modes[h.Mode]++
		}
	}
	if modes[accessv1.ReadShared] != 1 {
		t.Errorf("recorded are %v", modes)
	}

	server := &accessv1.BackupServer{URL: "https://user:pass@store/web/?key=secret", SecretRef: "login", CertConfigMap: "ca", SecretExtraHeaders: []string{"token"}}
	w = filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), backupAt(server), ofBackup()}})
	start(w)
	pod, got = told(w)
	if b := got.Source.Backup; b == nil || b.Set.HTTP == nil || b.Set.HTTP.URL != server.URL || b.Set.HTTP.CredentialsDir == "" || b.Set.HTTP.CADir == "" || b.Set.HTTP.HeadersDir == "" {
		t.Fatalf("the worker is told %+v", got.Source.Backup)
	}
	if len(pod.Spec.Volumes) != 5 { // the task, the claim, login, ca and token
		t.Errorf("the worker has %+v", pod.Spec.Volumes)
	}
	if said := message(volumeIn(w)); strings.Contains(said, "secret") || strings.Contains(said, "pass") {
		t.Errorf("a message has what may be a key: %s", said)
	}
}

func message(v *cdiv1.DataVolume) string {
	var all []string
	for _, c := range v.Status.Conditions {
		all = append(all, c.Message)
	}
	return strings.Join(all, "; ")
}

// TestBackupThatIsNotThere: a volume waits for its backup source and for the claim with the backups, says which, and starts when both are there.
func TestBackupThatIsNotThere(t *testing.T) {
	block := filltest.Bound(filltest.Team, "backups")
	block.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	unbound := filltest.Bound(filltest.Team, "backups")
	unbound.Status.Phase = corev1.ClaimLost
	abroad := ofBackup()
	abroad.Spec.SourceRef.Namespace = ptr.To("images")
	for name, c := range map[string]struct {
		objects []client.Object
		volume  *cdiv1.DataVolume
		says    string
	}{
		"no source":         {nil, ofBackup(), "there is no VolumeBackupSource team/root"},
		"no claim":          {[]client.Object{backupIn("backups")}, ofBackup(), "there is no claim team/backups"},
		"a device":          {[]client.Object{backupIn("backups"), block}, ofBackup(), "volumeMode Block"},
		"not bound":         {[]client.Object{backupIn("backups"), unbound}, ofBackup(), "is not bound"},
		"no URL":            {[]client.Object{backupAt(&accessv1.BackupServer{URL: "ftp://u:p@store/web"})}, ofBackup(), "is no URL with http, https"},
		"another namespace": {[]client.Object{backupIn("backups")}, abroad, "is in another namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			w := filltest.New(t, filltest.Scene{Objects: append(c.objects, filltest.Class(filltest.AtOnce), c.volume), Reports: []task.Report{filltest.Done()}})
			step(w)
			if pod, _ := told(w); pod != nil {
				t.Error("there is a worker")
			}
			if said := message(volumeIn(w)); !strings.Contains(said, c.says) {
				t.Errorf("it says %q, want %q", said, c.says)
			}
			if name != "no source" {
				return
			}
			w.Must(w.API.Create(t.Context(), backupIn("backups")))
			w.Must(w.API.Create(t.Context(), filltest.Bound(filltest.Team, "backups")))
			step(w)
			if v := volumeIn(w); v.Status.Phase != cdiv1.Succeeded {
				t.Errorf("it is %s: %s", v.Status.Phase, message(v))
			}
		})
	}
}

// TestBesideItsBackup: a claim whose class waits for a consumer is bound by the worker if only some nodes can read the backup, and is held if all can.
func TestBesideItsBackup(t *testing.T) {
	local := append(filltest.BoundOn("backups", "node1"), filltest.Class(filltest.Waits), backupIn("backups"), ofBackup())
	w := filltest.New(t, filltest.Scene{Objects: local, Reports: []task.Report{filltest.Done()}})
	step(w)
	if v := volumeIn(w); v.Status.Phase != cdiv1.Succeeded {
		t.Errorf("beside a local backup it is %s: %s", v.Status.Phase, message(v))
	}
	w = filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.Waits), filltest.Bound(filltest.Team, "backups"), backupIn("backups"), ofBackup()}})
	step(w)
	if v := volumeIn(w); v.Status.Phase != cdiv1.WaitForFirstConsumer {
		t.Errorf("with a backup that all nodes can read it is %s: %s", v.Status.Phase, message(v))
	}
}

// TestEarlyBootOfABackup: a worker of a backup is told to serve the disk while it is filled.
func TestEarlyBootOfABackup(t *testing.T) {
	v := ofBackup()
	v.Annotations = map[string]string{names.BootEarly: "true"}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), filltest.Bound(filltest.Team, "backups"), backupIn("backups"), v}})
	start(w)
	if _, got := told(w); !got.Early {
		t.Errorf("the worker is told %+v", got)
	}
}
