//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// gcs is a bucket that only the bearer of a token may read, the place that gives tokens to a service account, and that account's
// key in the Secret "account", as CDI's users have it.
func (b *bed) gcs() cdiv1.DataVolumeSource {
	b.T.Helper()
	storage, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, PublicHost: b.HostAddress(), InitialObjects: []fakestorage.Object{
		{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "images", Name: "disk.img"}, Content: image(24)},
	}})
	b.must(err)
	b.T.Cleanup(storage.Stop)
	const token = "let-me-in"
	url := b.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token" && strings.Count(r.FormValue("assertion"), ".") == 2:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, token)
		case r.Header.Get("Authorization") != "Bearer "+token:
			http.Error(w, "who are you", http.StatusUnauthorized)
		default:
			r.Host = b.HostAddress()
			storage.HTTPHandler().ServeHTTP(w, r)
		}
	}))
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	b.must(err)
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "reader@example.org", "token_uri": url + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
	b.must(err)
	b.must(b.kube.Create(b.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "account"}, Data: map[string][]byte{"credentials.json": account},
	}))
	return cdiv1.DataVolumeSource{GCS: &cdiv1.DataVolumeSourceGCS{URL: url + "/images/disk.img", SecretRef: "account"}}
}

// TestVolumeOptions: headers from a Secret reach the server, the worker has the priority that was asked for, and the disk has all
// of its blocks if that was.
func TestVolumeOptions(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	priority := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: b.Namespace}, Value: 1000}
	b.must(b.kube.Create(b.Context(), priority))
	t.Cleanup(func() {
		if err := b.kube.Delete(context.Background(), priority); err != nil {
			t.Error(err)
		}
	})
	b.must(b.kube.Create(b.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "header"}, StringData: map[string]string{"any": "X-Pass: open sesame"},
	}))
	url := b.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Pass") != "open sesame" || r.Header.Get("X-Plain") != "too" {
			http.Error(w, "closed", http.StatusForbidden)
			return
		}
		b.web.ServeHTTP(w, r)
	}))
	release := b.web.hold()
	b.volume(volume{class: classDiskImmediate, size: "64Mi", change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source.HTTP = &cdiv1.DataVolumeSourceHTTP{
			URL: url + "/disk.img", SecretExtraHeaders: []string{"header"}, ExtraHeaders: []string{"X-Plain: too"},
		}
		dv.Spec.Preallocation, dv.Spec.PriorityClassName = ptr(true), priority.Name
	}})
	b.untilPhase("disk", cdiv1.ImportInProgress)
	var worker corev1.Pod
	b.must(b.kube.Get(b.Context(), types.NamespacedName{Namespace: b.Namespace, Name: "importer-disk"}, &worker))
	if worker.Spec.PriorityClassName != priority.Name || worker.Spec.Priority == nil || *worker.Spec.Priority != priority.Value {
		t.Errorf("the worker's priority is %q", worker.Spec.PriorityClassName)
	}
	release()
	b.untilPhase("disk", cdiv1.Succeeded)
	if got := b.claim("disk").Annotations["cdi.kubevirt.io/storage.preallocation"]; got != "true" {
		t.Errorf("the claim says preallocation %q", got)
	}
	size := b.begins("disk", image(24))
	out := strings.TrimSpace(b.Run(framework.Pod{Name: "blocks", User: guest, Claims: []string{"disk"}, Script: "stat -c %b /disk/disk.img"}))
	if blocks, err := strconv.ParseInt(out, 10, 64); err != nil || blocks*512 < size {
		t.Errorf("a preallocated disk of %d bytes has %s blocks of 512", size, out)
	}
}
