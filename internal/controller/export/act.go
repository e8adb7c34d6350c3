package export

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	exportv1 "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/decide/export"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

func (r *Reconciler) act(ctx context.Context, a export.Action, s *seen) error {
	switch a {
	case export.Remove:
		return r.cluster.Delete(ctx, s.of)
	case export.StopServer:
		return r.cluster.Delete(ctx, s.server)
	case export.MakeClaims:
		return r.makeClaims(ctx, s)
	case export.TakeDisks:
		return r.records.Admit(ctx, s.server)
	case export.MakeService:
		return r.cluster.Create(ctx, s.render().Service())
	case export.StartServer:
		return r.startServer(ctx, s)
	}
	return fmt.Errorf("export %s/%s: no such action %s", s.of.Namespace, s.of.Name, a)
}

func (s *seen) owner() metav1.OwnerReference {
	return *metav1.NewControllerRef(s.of, exportv1.GroupVersion.WithKind("VirtualMachineExport"))
}

// makeClaims makes what the volumes of a snapshot are read from. They go with the export.
func (r *Reconciler) makeClaims(ctx context.Context, s *seen) error {
	for _, d := range s.disks {
		if d.claim != nil {
			continue
		}
		source := volumesnapshot.Source(*d.backup.VolumeSnapshotName)
		was := d.backup.PersistentVolumeClaim
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.of.Namespace, Name: render.ExportClaim(s.of.UID, d.volume), Labels: render.Labels(render.RoleExport),
				Annotations: map[string]string{}, OwnerReferences: []metav1.OwnerReference{s.owner()},
			},
			Spec: *was.Spec.DeepCopy(),
		}
		for _, key := range []string{names.ContentType, names.DiskSize, names.SelectedNode} {
			if value, ok := was.ObjectMeta.Annotations[key]; ok {
				claim.Annotations[key] = value
			}
		}
		claim.Spec.VolumeName, claim.Spec.Selector, claim.Spec.DataSource = "", nil, nil
		claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
		if err := r.cluster.Create(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

func keysName(of *exportv1.VirtualMachineExport) string { return "export-" + string(of.UID) + "-tls" }

// tokenName returns the Secret with the token: the one that the export names, or one that is made for it.
func tokenName(of *exportv1.VirtualMachineExport) string {
	if of.Spec.TokenSecretRef != nil {
		return *of.Spec.TokenSecretRef
	}
	return "export-" + string(of.UID) + "-token"
}

// TokenType is the type of a token's Secret that is made here; whose it may be, config/rbac/policies.yaml says.
const TokenType corev1.SecretType = "berth.dev/export-token" //nolint:gosec // G101: a type, not a token

// startServer makes the server, after what it reads. Keys are made again until there is a server to hold them.
func (r *Reconciler) startServer(ctx context.Context, s *seen) error {
	// A stale cache without the server would make clients trust keys that the server does not have.
	now, err := cluster.Owned[corev1.Pod](ctx, r.live, s.of.UID, s.of.Namespace, render.ExportName(s.of.Name))
	if err != nil {
		return err
	} else if now != nil {
		return cluster.ErrStale
	}
	if s.of.Spec.TokenSecretRef == nil {
		token := s.secret(tokenName(s.of), TokenType, map[string][]byte{exportv1.TokenKey: []byte(rand.Text())})
		if err := r.cluster.Create(ctx, token); err != nil {
			return err
		}
	}
	ca, err := r.makeKeys(ctx, s)
	if err != nil {
		return err
	}
	settings, err := r.settings.Settings(ctx)
	if err != nil {
		return err
	}
	e := s.render()
	e.CA, e.Settings = ca, settings.Pod(r.image)
	for _, d := range s.disks {
		e.Disks = append(e.Disks, d.exported())
	}
	if err := r.cluster.Create(ctx, e.Service()); err != nil {
		return err
	}
	pod, err := e.Pod()
	if err != nil {
		return err
	}
	var claims []*corev1.PersistentVolumeClaim
	for _, d := range s.disks {
		claims = append(claims, d.claim)
	}
	if err := nodeselect.FollowClaims(ctx, r.reader, pod, claims...); err != nil { // the server runs where its disks are, whatever the node repels
		return err
	}
	return r.cluster.Create(ctx, pod)
}

// render returns what the server and its Service are made of, without its keys and without the disks.
func (s *seen) render() render.Export {
	return render.Export{
		Name: s.of.Name, Namespace: s.of.Namespace, UID: s.of.UID, Owner: s.owner(), Labels: s.of.Labels, Annotations: s.of.Annotations,
		Machine: s.vm, Keys: keysName(s.of), Token: tokenName(s.of),
	}
}

func (s *seen) secret(name string, kind corev1.SecretType, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.of.Namespace, Name: name, Labels: render.Labels(render.RoleExport), OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Type: kind, Data: data,
	}
}

// keysOutlast is how long the keys are good for after the export is deleted.
const keysOutlast = 24 * time.Hour

// makeKeys makes an authority that signs one certificate, the server's, and keeps that with its key. Clients trust the authority.
func (r *Reconciler) makeKeys(ctx context.Context, s *seen) (ca string, err error) {
	lasts := expiry(s.of).Sub(s.now) + keysOutlast
	host := render.ExportHost(s.of.Namespace, s.of.Name)
	keys, ca, err := pki.ForServer("berth-export", []string{host, host + ".cluster.local"}, s.now, lasts)
	if err != nil {
		return "", err
	}
	return ca, r.cluster.Replace(ctx, s.secret(keysName(s.of), corev1.SecretTypeTLS, map[string][]byte{
		corev1.TLSCertKey: keys.Certificate, corev1.TLSPrivateKeyKey: keys.Key,
	}))
}
