package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	export "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/open"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/vmexport"
)

// Bounds of what is read: a set is written by others.
const (
	mostList    = 8 << 20
	mostBackups = 10_000
	mostFile    = 4 << 20
)

// set is a set of backups as it is read here.
type set struct {
	files backup.Files
	// dir reads the list of a directory; nil: the server has none.
	dir  func(ctx context.Context) ([]byte, error)
	from accessv1.VolumeBackupSourceSpec // where workers find it
	aids *aids                           // what they need for it; nil: nothing
	keep bool                            // what serves it is needed further
}

// aids are objects that a worker needs to read a set of another namespace.
type aids struct {
	name, cert, token string
	labels            map[string]string
}

// source is where workers find the set.
func (s *set) source() accessv1.VolumeBackupSourceSpec { return s.from }

// inClaim is a set in a claim of the machine's namespace.
func inClaim(claim, dir string, f *vmexport.Files) *set {
	return &set{
		files: func(ctx context.Context, name string) (source.Blob, error) {
			p, err := f.Read(ctx, path.Join(dir, name), mostFile)
			return inMemory{name, p}, err
		},
		dir:  func(ctx context.Context) ([]byte, error) { return f.Read(ctx, dir+"/", mostList) },
		from: accessv1.VolumeBackupSourceSpec{Claim: &accessv1.BackupClaim{Name: claim, Path: dir}},
	}
}

// serve has workers read the set from the export of its claim.
func (s *set) serve(name string, f *vmexport.Files) {
	s.aids = &aids{name: name, cert: f.Cert, token: f.Token}
	s.from = accessv1.VolumeBackupSourceSpec{HTTP: &accessv1.BackupServer{
		URL: f.URL + "/" + s.from.Claim.Path, CertConfigMap: name, SecretExtraHeaders: []string{name},
	}}
}

// objects are the ConfigMap with the authority to trust and the Secret with the token.
func (a *aids) objects(owner metav1.OwnerReference) (*corev1.ConfigMap, *corev1.Secret) {
	meta := metav1.ObjectMeta{Name: a.name, Labels: a.labels, OwnerReferences: []metav1.OwnerReference{owner}}
	return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.pem": a.cert}},
		&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"header": export.TokenHeader + ": " + a.token}}
}

// atServer is a set at a server or in a bucket. done forgets its login.
func atServer(ctx context.Context, c *kube.Client, o Options) (s *set, done func(), err error) {
	dir, err := os.MkdirTemp("", "virtctl-restore-")
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.RemoveAll(dir) } // what is left is this user's own, in their own directory
	access, err := login(ctx, c, o, dir)
	if err != nil {
		done()
		return nil, nil, err
	}
	server := &accessv1.BackupServer{URL: o.From, SecretRef: o.SecretRef, CertConfigMap: o.CertConfigMap}
	at, known := open.At(o.From, access)
	switch web := known && at.HTTP != nil; {
	case web && o.Bucket == "s3":
		at = task.Source{S3: &task.S3{URL: o.From, Access: access}}
	case web && o.Bucket == "gcs":
		at = task.Source{GCS: &task.GCS{URL: o.From, Access: access}}
	}
	s = &set{}
	switch {
	case known && at.HTTP != nil:
		s.from.HTTP = server
		list := task.Source{HTTP: &task.HTTP{URL: strings.TrimSuffix(o.From, "/") + "/", Access: access}}
		s.dir = func(ctx context.Context) ([]byte, error) { return readAll(ctx, list) }
	case known && at.S3 != nil:
		s.from.S3 = server
	case known && at.GCS != nil:
		s.from.GCS = server
	default:
		done()
		return nil, nil, fmt.Errorf("%s: a set of backups is in a claim, or at http, https, s3 or gs", o.From)
	}
	s.files = func(ctx context.Context, name string) (source.Blob, error) {
		in, err := at.Below(name)
		if err != nil {
			return nil, err
		}
		return open.Open(ctx, in)
	}
	return s, done, nil
}

// login writes the login and the authorities of a server where they are read from.
func login(ctx context.Context, c *kube.Client, o Options, dir string) (task.Access, error) {
	var a task.Access
	put := func(sub string, data map[string][]byte) (string, error) {
		at := filepath.Join(dir, sub)
		err := os.Mkdir(at, 0o700)
		for key, value := range data {
			err = errors.Join(err, os.WriteFile(filepath.Join(at, filepath.Base(key)), value, 0o600))
		}
		return at, err
	}
	var err error
	if o.SecretRef != "" {
		secret, e := c.Core.CoreV1().Secrets(c.Namespace).Get(ctx, o.SecretRef, metav1.GetOptions{})
		if e != nil {
			return a, fmt.Errorf("read the login of the server: %w", e)
		}
		a.CredentialsDir, err = put("login", secret.Data)
	}
	if o.CertConfigMap != "" && err == nil {
		certs, e := c.Core.CoreV1().ConfigMaps(c.Namespace).Get(ctx, o.CertConfigMap, metav1.GetOptions{})
		if e != nil {
			return a, fmt.Errorf("read whom to trust: %w", e)
		}
		data := map[string][]byte{}
		for key, value := range certs.Data {
			data[key] = []byte(value)
		}
		a.CADir, err = put("ca", data)
	}
	return a, err
}

func readAll(ctx context.Context, from task.Source) ([]byte, error) {
	b, err := open.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	defer b.Close() // it was only read
	r, err := b.Open(ctx, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, mostList))
}

// manifest reads the manifest of a backup, or of the newest if none is named.
func (s *set) manifest(ctx context.Context, checkpoint string) (*backup.Manifest, string, error) {
	if checkpoint == "" {
		all, err := s.list(ctx)
		if err != nil {
			return nil, "", err
		}
		checkpoint = all[len(all)-1].Checkpoint
	}
	return backup.Read(ctx, s.files, checkpoint)
}

var links = regexp.MustCompile(`href="(?:\./)?([^"/]{1,256})/"`)

// list returns the manifests of the set, the oldest first. What is no backup, or is damaged, is left out.
func (s *set) list(ctx context.Context) ([]*backup.Manifest, error) {
	if s.dir == nil {
		return nil, errors.New("a bucket does not say which backups are in it: name one with --at")
	}
	text, err := s.dir(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the backups (or name one with --at): %w", err)
	}
	var all []*backup.Manifest
	for _, found := range links.FindAllSubmatch(text, mostBackups) {
		if !backup.IsName(string(found[1])) {
			continue
		}
		m, _, err := backup.Read(ctx, s.files, string(found[1]))
		var known *task.Error
		if err != nil && !errors.As(err, &known) {
			return nil, err
		}
		if err == nil {
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there are no backups; is it the directory of the set?")
	}
	slices.SortStableFunc(all, func(a, b *backup.Manifest) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// inMemory is a small file that was read.
type inMemory struct {
	name string
	data []byte
}

func (m inMemory) Info() source.Info {
	return source.Info{Name: m.name, Size: int64(len(m.data)), Ranged: true}
}

func (m inMemory) Open(_ context.Context, off, n int64) (io.ReadCloser, error) {
	n, err := m.Info().Span(off, n)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(m.data[off : off+n])), nil
}

func (inMemory) Close() error { return nil }
