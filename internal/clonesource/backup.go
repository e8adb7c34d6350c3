package clonesource

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/importsource"
)

// Backup is the disk of a backup that a volume is filled with.
type Backup struct {
	Disk accessv1.VolumeBackupSourceSpec
	// Server is the kind of server that holds the set of backups; nil: Claim holds it.
	Server *importsource.Kind
	At     importsource.Source // of Server
	Claim  *corev1.PersistentVolumeClaim
}

// BackupSource is the kind of the sources that stand for a disk of a backup.
var BackupSource = accessv1.GroupVersion.WithKind(accessv1.VolumeBackupSourceKind)

// String returns the disk's name in messages. The query of a URL may hold a key, so it is left out.
func (b *Backup) String() string {
	where := ""
	switch {
	case b.Disk.Claim != nil:
		where = strings.TrimSuffix("claim "+b.Disk.Claim.Name+"/"+b.Disk.Claim.Path, "/")
	case b.Server != nil:
		where = "the set at a server"
		if u, err := url.Parse(b.At.URL); err == nil {
			u.User, u.RawQuery, u.Fragment = nil, "", ""
			where = u.String()
		}
	}
	return fmt.Sprintf("disk %s of backup %s in %s", b.Disk.Volume, b.Disk.Checkpoint, where)
}

// FindBackup reads a VolumeBackupSource and the claim that it names. The text says why it does not refer to a disk yet; empty if it does.
func FindBackup(ctx context.Context, from Reader, namespace, name string) (*Backup, string, error) {
	var source accessv1.VolumeBackupSource
	if ok, err := from.Read(ctx, namespace, name, &source); !ok || err != nil {
		return nil, fmt.Sprintf("there is no VolumeBackupSource %s/%s", namespace, name), err
	}
	b := &Backup{Disk: source.Spec}
	b.Server, b.At = serverOf(&source.Spec)
	if b.Server != nil {
		return b, wrongAddress(b), nil
	}
	at := source.Spec.Claim
	if at == nil {
		return b, fmt.Sprintf("VolumeBackupSource %s says of no set of backups where it is", name), nil
	}
	var claim corev1.PersistentVolumeClaim
	if ok, err := from.Read(ctx, namespace, at.Name, &claim); !ok || err != nil {
		return b, fmt.Sprintf("there is no claim %s/%s, which is to hold the backups", namespace, at.Name), err
	}
	b.Claim = &claim
	switch {
	case ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock:
		return b, fmt.Sprintf("claim %s has volumeMode Block, and a set of backups is a directory", at.Name), nil
	case claim.Status.Phase != corev1.ClaimBound:
		return b, fmt.Sprintf("claim %s, which is to hold the backups, is not bound", at.Name), nil
	}
	return b, "", nil
}

// serverOf returns the kind of server that has the set; nil: a claim has it.
func serverOf(s *accessv1.VolumeBackupSourceSpec) (*importsource.Kind, importsource.Source) {
	for name, server := range map[string]*accessv1.BackupServer{"http": s.HTTP, "s3": s.S3, "gcs": s.GCS} {
		if server == nil {
			continue
		}
		at := importsource.Source{URL: server.URL, Secret: server.SecretRef, Certificates: server.CertConfigMap}
		if s.HTTP != nil {
			at.SecretHeaders = server.SecretExtraHeaders
		}
		return importsource.Named(name), at
	}
	return nil, importsource.Source{}
}

// wrongAddress returns the error in the address of a server; empty if it is valid. The error of the url package repeats the URL,
// which may hold a password.
func wrongAddress(b *Backup) string {
	u, err := url.Parse(b.At.URL)
	if err != nil || u.Host == "" || !slices.Contains(b.Server.Schemes, u.Scheme) {
		return fmt.Sprintf("the address of the set at %s is no URL with %s", b.Server.Name, strings.Join(b.Server.Schemes, ", "))
	}
	return ""
}
