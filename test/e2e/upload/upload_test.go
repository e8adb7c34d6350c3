//go:build e2e

package upload

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/fixture"
)

// awaitDevice is await for a device.
func awaitDevice(d *fixture.Uploads, name, size string) {
	d.CreateUploadOn(name, size, "localdisk-immediate", corev1.PersistentVolumeBlock)
}

// leftNothing: what was made for the upload is gone.
func leftNothing(d *fixture.Uploads, claim string) {
	d.T.Helper()
	d.Wait("nothing to be left of the upload", fixture.Patience, func(ctx context.Context) (bool, string) {
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
	d := fixture.NewUploads(fixture.NewVolumes(t))
	disk := fixture.DiskImage(8)
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
	d.Wait("the volume to be UploadReady", fixture.Patience, func(context.Context) (bool, string) {
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
	token := d.RequestToken("up")
	send := func(method string, body io.Reader) {
		t.Helper()
		req, err := http.NewRequestWithContext(d.Context(), method, d.URL+"/v1beta1/upload-async", body)
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
	d.Wait("the claim's pod phase to be Succeeded", fixture.Patience, func(context.Context) (bool, string) {
		var pvc corev1.PersistentVolumeClaim
		get(claim, &pvc)
		phase := pvc.Annotations["cdi.kubevirt.io/storage.pod.phase"]
		return phase == "Succeeded", phase
	})
	d.HoldsRaw("up", disk)
}
