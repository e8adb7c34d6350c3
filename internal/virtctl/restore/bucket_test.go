package restore

import (
	"bytes"
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corefake "k8s.io/client-go/kubernetes/fake"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/testing/stores"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/encode"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// chainOf writes a backup of machine web and two increments.
func chainOf(t *testing.T) fs.FS {
	t.Helper()
	dir, disk := t.TempDir(), bytes.Repeat([]byte("a"), 1<<20)
	machine := manifestOf(t, web).Machine
	for n, name := range []string{"b0", "b1", "b2"} {
		copy(disk[n<<16:], bytes.Repeat([]byte{byte(n)}, 1<<16))
		whole := func(_ context.Context, from, to int64) ([][2]int64, error) { return [][2]int64{{from, to - from}}, nil }
		s := backup.Source{Name: "root", Disk: encode.Disk{ReaderAt: bytes.NewReader(bytes.Clone(disk)), Size: int64(len(disk)), Data: whole}}
		p := backup.Plan{Checkpoint: name, Created: time.Unix(int64(n), 0), Machine: machine, Disks: []backup.Source{s}}
		if n > 0 {
			p.Parent, p.Disks[0].Changed = []string{"b0", "b1"}[n-1], whole
		}
		if _, err := backup.Write(t.Context(), dir, p); err != nil {
			t.Fatal(err)
		}
	}
	return os.DirFS(dir)
}

// TestFromABucket: a set in a bucket of either kind is read with the Secret's login, its chain is followed, and the disks name the bucket and the Secret. A bucket
// does not list its backups, which is said.
func TestFromABucket(t *testing.T) {
	files := chainOf(t)
	for kind, c := range map[string]struct {
		secret map[string][]byte
		login  string // how a request shows that it was signed
		in     func(accessv1.VolumeBackupSourceSpec) *accessv1.BackupServer
	}{
		stores.S3:  {map[string][]byte{"accessKeyId": []byte("key"), "secretKey": []byte("secret")}, "Credential=key/", func(s accessv1.VolumeBackupSourceSpec) *accessv1.BackupServer { return s.S3 }},
		stores.GCS: {nil, "", func(s accessv1.VolumeBackupSourceSpec) *accessv1.BackupServer { return s.GCS }},
	} {
		t.Run(kind, func(t *testing.T) {
			store := stores.New(t, kind)
			err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				text, err := fs.ReadFile(files, path)
				store.Put("backups", "web/"+path, "", text)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			var strangers atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.Contains(r.Header.Get("Authorization"), c.login) {
					strangers.Add(1)
				}
				store.ServeHTTP(w, r)
			}))
			defer server.Close()
			o := Options{Name: "web", From: server.URL + "/backups/web", At: "b2", Bucket: kind}
			cluster := &kube.Client{Namespace: "team", Core: corefake.NewClientset()}
			if c.secret != nil {
				o.SecretRef = "login"
				cluster.Core = corefake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "login"}, Data: c.secret})
			}
			err = withSet(t.Context(), cluster, o, nil, func(s *set) error {
				p, err := prepare(t.Context(), s, o, "team")
				if err != nil {
					return err
				}
				if from := c.in(p.disks[0].source.Spec); from == nil || from.URL != o.From || from.SecretRef != o.SecretRef || p.moment.Checkpoint != "b2" {
					t.Errorf("the disk comes from %+v", p.disks[0].source.Spec)
				}
				if _, err := s.list(t.Context()); err == nil || !strings.Contains(err.Error(), "--at") {
					t.Errorf("its backups are listed: %v", err)
				}
				return nil
			})
			if err != nil || strangers.Load() > 0 {
				t.Errorf("%v; %d requests without a login", err, strangers.Load())
			}
			o.At = "b7"
			err = withSet(t.Context(), cluster, o, nil, func(s *set) error {
				_, err := prepare(t.Context(), s, o, "team")
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "b7") {
				t.Errorf("a backup that is not there: %v", err)
			}
		})
	}
}
