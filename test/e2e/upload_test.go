//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"
)

// door is the upload proxy as a user of the cluster finds it.
type door struct {
	*bed
	url string
	ca  string // a file
}

func newDoor(b *bed) *door {
	b.T.Helper()
	d := &door{bed: b, ca: filepath.Join(b.T.TempDir(), "ca.crt")}
	var c cdiv1.CDIConfig
	if err := b.kube.Get(b.Context(), types.NamespacedName{Name: "config"}, &c); err != nil {
		b.T.Fatal(err)
	}
	if c.Status.UploadProxyURL == nil || c.Status.UploadProxyCA == nil {
		b.T.Fatalf("CDIConfig does not say where the upload proxy is: %+v", c.Status)
	}
	d.url = *c.Status.UploadProxyURL
	if err := os.WriteFile(d.ca, []byte(*c.Status.UploadProxyCA), 0o600); err != nil {
		b.T.Fatal(err)
	}
	return d
}

// await makes a volume that waits for an upload and waits until it is ready for one.
func (d *door) await(name, size string) {
	d.awaitOn(name, size, classImmediate, corev1.PersistentVolumeFilesystem)
}

// awaitDevice is await for a device.
func (d *door) awaitDevice(name, size string) {
	d.awaitOn(name, size, "localdisk-immediate", corev1.PersistentVolumeBlock)
}

func (d *door) awaitOn(name, size, class string, mode corev1.PersistentVolumeMode) {
	d.T.Helper()
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: name},
		Spec: cdiv1.DataVolumeSpec{
			Source:  &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}},
			Storage: &cdiv1.StorageSpec{StorageClassName: &class, VolumeMode: &mode, Resources: request(size)},
		},
	}
	if err := d.kube.Create(d.Context(), dv); err != nil {
		d.T.Fatal(err)
	}
	d.untilPhase(name, cdiv1.UploadReady)
}

// token asks for a token as any client does.
func (d *door) token(claim string) string {
	d.T.Helper()
	body, err := json.Marshal(uploadv1.UploadTokenRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "upload.cdi.kubevirt.io/v1beta1", Kind: "UploadTokenRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: "token-for-virtctl", Namespace: d.Namespace},
		Spec:       uploadv1.UploadTokenRequestSpec{PvcName: claim},
	})
	if err != nil {
		d.T.Fatal(err)
	}
	var got uploadv1.UploadTokenRequest
	answer, err := d.Client.CoreV1().RESTClient().Post().
		AbsPath("/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/"+d.Namespace+"/uploadtokenrequests").
		SetHeader("Content-Type", "application/json").Body(body).DoRaw(d.Context())
	if err == nil {
		err = json.Unmarshal(answer, &got)
	}
	if err != nil || got.Status.Token == "" || got.Kind != "UploadTokenRequest" {
		d.T.Fatalf("ask for a token: %v, %s", err, answer)
	}
	return got.Status.Token
}

// curl runs curl and returns the status and what the server said.
func (d *door) curl(token, path string, args ...string) (status, text string) {
	d.T.Helper()
	args = append([]string{"-sS", "--cacert", d.ca, "--max-time", "120", "-w", "\n%{http_code}"}, args...)
	if token != "" {
		args = append(args, "-H", "Authorization: Bearer "+token)
	}
	out, err := exec.CommandContext(d.Context(), "curl", append(args, d.url+path)...).CombinedOutput()
	text = strings.TrimSpace(string(out))
	at := strings.LastIndex(text, "\n")
	status, text = text[at+1:], strings.TrimSpace(text[:max(at, 0)])
	if err != nil && status == "000" {
		d.T.Fatalf("curl %v: %v\n%s", args, err, out)
	}
	d.T.Logf("curl %s %s: %s %s", path, strings.Join(args[6:], " "), status, text)
	return status, text
}

// answers fails the test unless curl gets this status and a text with these words.
func (d *door) answers(status, words, token, path string, args ...string) {
	d.T.Helper()
	got, text := d.curl(token, path, args...)
	if got != status || !strings.Contains(text, words) {
		d.T.Errorf("curl %s %v: got %s %q, want %s %q", path, args, got, text, status, words)
	}
}

func (d *door) file(name string, data []byte) string {
	d.T.Helper()
	path := filepath.Join(d.T.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		d.T.Fatal(err)
	}
	return path
}

// holdsRaw compares the disk of a claim with what was sent.
func (d *door) holdsRaw(claim string, data []byte) {
	d.T.Helper()
	pvc := d.claim(claim)
	size := pvc.Annotations["berth.dev/disk-size"]
	var n int64
	if err := json.Unmarshal([]byte(size), &n); err != nil {
		d.T.Fatalf("the claim does not say how large its disk is: %q", size)
	}
	if got, want := d.Sum(claim, "disk.img"), sum(data, n); got != want {
		d.T.Errorf("the disk of %s has another sha256 than what was sent: %s instead of %s", claim, got, want)
	}
}

// leftNothing: what was made for the upload is gone.
func (d *door) leftNothing(claim string) {
	d.T.Helper()
	d.Wait("nothing to be left of the upload", patience, func(ctx context.Context) (bool, string) {
		pods, err := d.Client.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "cdi.kubevirt.io=cdi-upload-server"})
		if err != nil {
			return false, err.Error()
		}
		for _, p := range pods.Items {
			if p.Name == "cdi-upload-"+claim {
				return false, "pod " + p.Name
			}
		}
		secrets, err := d.Client.CoreV1().Secrets(d.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, s := range secrets.Items {
			if s.Name == "cdi-upload-"+claim {
				return false, "secret " + s.Name
			}
		}
		return true, ""
	})
}

// cable is a way to the proxy that is pulled after so many bytes of each connection. Before a connection breaks, what was
// to happen meanwhile happens.
type cable struct {
	url  string
	each int64

	mu        sync.Mutex
	passed    int64
	meanwhile []func()
}

func newCable(t *testing.T, server string, each int64, meanwhile ...func()) *cable {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	host := to.Host
	if to.Port() == "" {
		host = net.JoinHostPort(to.Hostname(), "443")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{url: "https://" + l.Addr().String(), each: each, meanwhile: meanwhile}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.connect(conn, host) })
		}
	})
	return c
}

func (c *cable) connect(from net.Conn, host string) {
	defer from.Close()
	to, err := net.Dial("tcp", host)
	if err != nil {
		return
	}
	defer to.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}()
	n, _ := io.CopyN(to, from, c.each)
	c.mu.Lock()
	c.passed += n
	if n == c.each && len(c.meanwhile) > 0 {
		do := c.meanwhile[0]
		c.meanwhile = c.meanwhile[1:]
		do()
	}
	c.mu.Unlock()
	_ = to.Close()
	<-back
}

// TestUploadAsUpstreamVirtctl is the sequence of requests that an unmodified virtctl v1.7 makes for image-upload dv.
func TestUploadAsUpstreamVirtctl(t *testing.T) {
	t.Parallel()
	d := newDoor(newBed(t))
	disk := image(8)
	api := d.Client.CoreV1().RESTClient()
	get := func(path string, into any) int {
		t.Helper()
		var code int
		body, err := api.Get().AbsPath(path).Do(d.Context()).StatusCode(&code).Raw()
		if err == nil && into != nil {
			err = json.Unmarshal(body, into)
		}
		if err != nil && code != http.StatusNotFound {
			t.Fatalf("GET %s: %d %v", path, code, err)
		}
		return code
	}
	claim := "/api/v1/namespaces/" + d.Namespace + "/persistentvolumeclaims/up"
	volumes := "/apis/cdi.kubevirt.io/v1beta1/namespaces/" + d.Namespace + "/datavolumes"
	if code := get(claim, nil); code != http.StatusNotFound {
		t.Fatalf("the claim is there already: %d", code)
	}
	body := `{"kind":"DataVolume","apiVersion":"cdi.kubevirt.io/v1beta1","metadata":{"name":"up","creationTimestamp":null,` +
		`"annotations":{"cdi.kubevirt.io/storage.bind.immediate.requested":""}},"spec":{"source":{"upload":{}},` +
		`"storage":{"resources":{"requests":{"storage":"16Mi"}}},"contentType":"kubevirt"},"status":{}}`
	if err := api.Post().AbsPath(volumes).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(d.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	d.Wait("the volume to be UploadReady", patience, func(context.Context) (bool, string) {
		var dv cdiv1.DataVolume
		get(volumes+"/up", &dv)
		return dv.Status.Phase == cdiv1.UploadReady, string(dv.Status.Phase)
	})
	var pvc corev1.PersistentVolumeClaim
	get(claim, &pvc)
	if got := pvc.Annotations["cdi.kubevirt.io/storage.pod.ready"]; got != "true" {
		t.Errorf("the claim's upload pod is ready: %q", got)
	}
	var config cdiv1.CDIConfig
	get("/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config", &config)
	if config.Status.UploadProxyURL == nil {
		t.Fatal("uploadproxy URL not found")
	}
	token := d.token("up")
	send := func(method string, body io.Reader) {
		t.Helper()
		req, err := http.NewRequestWithContext(d.Context(), method, d.url+"/v1beta1/upload-async", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/octet-stream")
		answer, err := insecure().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(answer.Body)
			t.Fatalf("%s upload-async: unexpected return value %d, %s", method, answer.StatusCode, text)
		}
	}
	send(http.MethodHead, nil)
	send(http.MethodPost, bytes.NewReader(disk))
	d.Wait("the claim's pod phase to be Succeeded", patience, func(context.Context) (bool, string) {
		var pvc corev1.PersistentVolumeClaim
		get(claim, &pvc)
		phase := pvc.Annotations["cdi.kubevirt.io/storage.pod.phase"]
		return phase == "Succeeded", phase
	})
	d.holdsRaw("up", disk)
}
