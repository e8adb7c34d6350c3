package httpaccess

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"encoding/pem"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-vm/berth/internal/task"
)

// mount lays files out as the kubelet mounts a Secret: links to links into a hidden directory.
func mount(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "..2026_01_01")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..2026_01_01", filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLogin(t *testing.T) {
	for name, c := range map[string]struct {
		dir  string
		want Credentials
		ok   bool
		bad  task.Reason
	}{
		"none":      {},
		"both":      {dir: mount(t, map[string]string{"accessKeyId": "user\n", "secretKey": "a b\r\n"}), want: Credentials{"user", "a b"}, ok: true},
		"no secret": {dir: mount(t, map[string]string{"accessKeyId": "user"}), bad: task.SourceDenied},
		"empty":     {dir: mount(t, nil), bad: task.SourceDenied},
		"not there": {dir: "/no/such/dir", bad: task.SourceDenied},
		"monstrous": {dir: mount(t, map[string]string{"accessKeyId": strings.Repeat("x", fileLimit+1)}), bad: task.BadTask},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := Login(task.Access{CredentialsDir: c.dir})
			if c.bad != "" {
				if !task.Is(err, c.bad) {
					t.Errorf("%v, want %s", err, c.bad)
				}
				return
			}
			if err != nil || got != c.want || ok != c.ok {
				t.Errorf("%+v %t %v", got, ok, err)
			}
		})
	}
}

func TestReadDir(t *testing.T) {
	dir := mount(t, map[string]string{"a": "1\n", "b": "2"})
	if err := os.Symlink(mount(t, map[string]string{"c": "3"}), filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	got, err := ReadDir(dir)
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2", "sub/c": "3"}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := ReadDir("/no/such/dir"); err == nil {
		t.Error("a directory that is not there was read")
	}
}

func TestProxyIsTheTasks(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://environment:1")
	t.Setenv("HTTPS_PROXY", "http://environment:1")
	a := task.Access{HTTPProxy: "http://plain:1", HTTPSProxy: "http://secure:2", NoProxy: "inside.example,10.0.0.0/8"}
	for raw, want := range map[string]string{
		"http://host/": "http://plain:1", "https://host/": "http://secure:2", "https://inside.example/": "",
		"https://a.inside.example/": "", "http://10.1.2.3/": "", "http://11.1.2.3/": "http://plain:1",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Proxy(a)(&http.Request{URL: u})
		if err != nil || want == "" && got != nil || want != "" && (got == nil || got.String() != want) {
			t.Errorf("%s goes through %v (%v), want %q", raw, got, err, want)
		}
		if got, _ := Proxy(task.Access{})(&http.Request{URL: u}); got != nil {
			t.Errorf("%s goes through the environment's %v", raw, got)
		}
	}
}

func TestTrust(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	for name, c := range map[string]struct {
		a  task.Access
		ok bool
	}{
		"nobody":    {task.Access{}, false},
		"the CA":    {task.Access{CADir: mount(t, map[string]string{"other": "no PEM", "ca.pem": ca})}, true},
		"everybody": {task.Access{Insecure: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := Transport(c.a)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.CloseIdleConnections()
			resp, err := (&http.Client{Transport: tr}).Get(s.URL) //nolint:noctx // the server is in this process
			if err == nil {
				resp.Body.Close()
			}
			if (err == nil) != c.ok {
				t.Errorf("get: %v", err)
			}
		})
	}
	if _, err := Transport(task.Access{CADir: mount(t, map[string]string{"ca.pem": "no PEM"})}); !task.Is(err, task.SourceUntrusted) {
		t.Errorf("a directory without certificates: %v", err)
	}
}
