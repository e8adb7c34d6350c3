package web

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// TestForward: what the page sends by tus goes to the upload proxy with a token for that claim and nothing of the person's, and what the
// proxy answers comes back as an answer of the page's own server.
func TestForward(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer mine" {
			t.Errorf("the cluster was asked with %v", r.Header)
		}
		if strings.HasSuffix(r.URL.Path, "/namespaces/team/uploadtokenrequests") {
			body, _ := io.ReadAll(r.Body)
			if !strings.Contains(string(body), `"pvcName":"disk"`) {
				t.Errorf("a token was asked for with %s", body)
			}
			_, _ = io.WriteString(w, `{"kind": "UploadTokenRequest", "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "status": {"token": "pass"}}`)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
	}))
	defer api.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer pass" || r.Header.Get("Cookie") != "" || r.Header.Get("Origin") != "" {
			t.Errorf("the proxy was told %v", r.Header)
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Access-Control-Allow-Origin", "*")
		switch r.Method + " " + r.URL.Path {
		case "POST /v1beta1/tus":
			w.Header().Set("Location", "/v1beta1/tus/uid.1-image-x")
			w.WriteHeader(http.StatusCreated)
		case "HEAD /v1beta1/tus/uid.1-image-x":
			w.Header().Set("Upload-Offset", "7")
		case "PATCH /v1beta1/tus/uid.1-image-x":
			if string(body) != "bytes" || r.Header.Get("Upload-Offset") != "7" || r.Header.Get("Content-Type") != "application/offset+octet-stream" {
				t.Errorf("%q came with %v", body, r.Header)
			}
			w.WriteHeader(http.StatusNoContent)
		default:
			t.Errorf("the proxy was asked to %s %s", r.Method, r.URL)
		}
	}))
	defer proxy.Close()
	c, err := kube.New(&rest.Config{Host: api.URL, BearerToken: "mine"}, "other")
	if err != nil {
		t.Fatal(err)
	}
	door := NewSecretDoor(&Person{Client: c}, "1")
	page := httptest.NewServer((&Server{Door: door, Hosts: []string{"127.0.0.1"}, UploadProxy: proxy.URL, Log: slog.New(slog.DiscardHandler)}).Handler())
	defer page.Close()
	do := func(method, path, body string) *http.Response {
		r, _ := http.NewRequest(method, page.URL+path, strings.NewReader(body))
		r.AddCookie(&http.Cookie{Name: door.name, Value: door.shown})
		r.Header.Set("Origin", page.URL)
		r.Header.Set("Tus-Resumable", "1.0.0")
		r.Header.Set("Upload-Offset", "7")
		r.Header.Set("Content-Type", "application/offset+octet-stream")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Error("other pages are let in")
		}
		return a
	}
	a := do("POST", "/uploads/team/disk/files", "")
	at := a.Header.Get("Location")
	if a.StatusCode != http.StatusCreated || at != "/uploads/team/disk/files/uid.1-image-x" {
		t.Fatalf("%s %s", a.Status, at)
	}
	if a := do("HEAD", at, ""); a.StatusCode != http.StatusOK || a.Header.Get("Upload-Offset") != "7" {
		t.Errorf("%s %v", a.Status, a.Header)
	}
	if a := do("PATCH", at, "bytes"); a.StatusCode != http.StatusNoContent {
		t.Error(a.Status)
	}
}

// TestDiskSize: the ends of a file say how large the disk in it is.
func TestDiskSize(t *testing.T) {
	qcow := make([]byte, 1<<20)
	copy(qcow, "QFI\xfb")
	binary.BigEndian.PutUint32(qcow[4:], 3)
	binary.BigEndian.PutUint32(qcow[20:], 16)
	binary.BigEndian.PutUint64(qcow[24:], 5<<30)
	binary.BigEndian.PutUint32(qcow[36:], 10)
	binary.BigEndian.PutUint64(qcow[40:], 3<<16)
	binary.BigEndian.PutUint64(qcow[48:], 1<<16)
	binary.BigEndian.PutUint32(qcow[56:], 1)
	binary.BigEndian.PutUint32(qcow[96:], 4)
	binary.BigEndian.PutUint32(qcow[100:], 104)
	raw := make([]byte, 3<<20)
	for name, c := range map[string]struct {
		data []byte
		want int64
	}{"qcow2": {qcow, 5 << 30}, "raw": {raw, 3 << 20}, "gzip": {append([]byte{0x1f, 0x8b, 8}, raw...), 0}} {
		const ends = 256 << 10
		f := file{Size: int64(len(c.data)), Head: base64.StdEncoding.EncodeToString(c.data[:ends]), Tail: base64.StdEncoding.EncodeToString(c.data[len(c.data)-ends:])}
		if got, err := f.diskSize(); err != nil || got != c.want {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}
