//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// login lets only one user in.
func login(user, password string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// secure serves over TLS with a certificate nobody knows, and makes the config map "roots" that says whom to trust.
func (b *bed) secure(handler http.Handler) (url string, client *http.Client) {
	b.T.Helper()
	url, authority := b.ServeTLS(handler)
	b.must(b.kube.Create(b.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "roots"},
		Data:       map[string]string{"ca.pem": authority},
	}))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(authority))
	return url, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

func (b *bed) must(err error) {
	if err != nil {
		b.T.Helper()
		b.T.Fatal(err)
	}
}

func (b *bed) secret(user, password string) {
	b.T.Helper()
	b.must(b.kube.Create(b.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "login"},
		StringData: map[string]string{"accessKeyId": user, "secretKey": password},
	}))
}

// places are where images are imported from, with the credentials and certificates each takes.
var places = map[string]func(*bed) cdiv1.DataVolumeSource{
	"https": func(b *bed) cdiv1.DataVolumeSource {
		url, _ := b.secure(login("ada", "secret", b.web))
		b.secret("ada", "secret")
		return cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url + "/disk.img", SecretRef: "login", CertConfigMap: "roots"}}
	},
	"gzip": func(b *bed) cdiv1.DataVolumeSource {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err := z.Write(image(24))
		b.must(err)
		b.must(z.Close())
		b.web.put("/disk.img.gz", packed.Bytes())
		return cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.web.url + "/disk.img.gz"}}
	},
	"qcow2": func(b *bed) cdiv1.DataVolumeSource {
		b.web.put("/disk.qcow2", qcow2(b, image(24)))
		return cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.web.url + "/disk.qcow2"}}
	},
	"registry": func(b *bed) cdiv1.DataVolumeSource {
		url, client := b.secure(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		ref := strings.TrimPrefix(url, "https://") + "/disks/test:1"
		push(b, ref, client)
		return cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr("docker://" + ref), CertConfigMap: ptr("roots")}}
	},
	"s3": func(b *bed) cdiv1.DataVolumeSource {
		backend := s3mem.New()
		b.must(backend.CreateBucket("images"))
		data := image(24)
		_, err := backend.PutObject("images", "disk.img", nil, bytes.NewReader(data), int64(len(data)), nil)
		b.must(err)
		b.secret("key", "secret")
		return cdiv1.DataVolumeSource{S3: &cdiv1.DataVolumeSourceS3{
			URL: b.Serve(gofakes3.New(backend).Server()) + "/images/disk.img", SecretRef: "login",
		}}
	},
	"gcs": (*bed).gcs,
}

// TestVolumeSources: one import from every kind of place, with the credentials and certificates it takes.
func TestVolumeSources(t *testing.T) {
	t.Parallel()
	for name, source := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, framework.Restricted)
			src := source(b)
			b.volume(volume{class: classImmediate, storage: "40Mi", change: func(dv *cdiv1.DataVolume) { dv.Spec.Source = &src }})
			dv := b.untilPhase("disk", cdiv1.Succeeded)
			if dv.Status.RestartCount != 0 {
				t.Errorf("took %d tries more than one", dv.Status.RestartCount)
			}
			b.holds("disk", image(24), 40*mib)
		})
	}
}

// qcow2 is the disk as qemu-img packs it.
func qcow2(b *bed, data []byte) []byte {
	b.T.Helper()
	raw, packed := filepath.Join(b.T.TempDir(), "disk.img"), filepath.Join(b.T.TempDir(), "disk.qcow2")
	b.must(os.WriteFile(raw, data, 0o600))
	out, err := exec.CommandContext(b.Context(), "qemu-img", "convert", "-c", "-O", "qcow2", raw, packed).CombinedOutput()
	if err != nil {
		b.T.Fatalf("qemu-img: %v: %s", err, out)
	}
	made, err := os.ReadFile(packed)
	b.must(err)
	return made
}

// push puts a container disk into a registry.
func push(b *bed, ref string, client *http.Client) {
	b.T.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	data := image(24)
	b.must(w.WriteHeader(&tar.Header{Name: "disk/disk.img", Mode: 0o444, Size: int64(len(data)), Typeflag: tar.TypeReg}))
	_, err := w.Write(data)
	b.must(err)
	b.must(w.Close())
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	b.must(err)
	img, err := mutate.AppendLayers(empty.Image, l)
	b.must(err)
	to, err := name.ParseReference(ref)
	b.must(err)
	b.must(remote.Write(to, img, remote.WithTransport(client.Transport)))
}

// TestVolumeArchive: a tar becomes the files of a volume.
func TestVolumeArchive(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	b.must(w.WriteHeader(&tar.Header{Name: "etc/hello", Mode: 0o644, Size: 5, Typeflag: tar.TypeReg}))
	_, err := w.Write([]byte("world"))
	b.must(err)
	b.must(w.Close())
	b.web.put("/files.tar", files.Bytes())
	b.volume(volume{class: classImmediate, size: "40Mi", url: b.web.url + "/files.tar", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.ContentType = cdiv1.DataVolumeArchive
	}})
	b.untilPhase("disk", cdiv1.Succeeded)
	if got := b.Run(framework.Pod{Name: "read", User: guest, Claims: []string{"disk"}, Script: "cat /disk/etc/hello"}); got != "world" {
		t.Errorf("the archive's file holds %q", got)
	}
}
