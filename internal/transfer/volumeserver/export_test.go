package volumeserver

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/tlsserver"
)

// exporting returns a server of a disk and an archive with the token "secret".
func exporting(t *testing.T) (server *httptest.Server, disk string) {
	t.Helper()
	dir := t.TempDir()
	disk, archive := filepath.Join(dir, "disk.img"), filepath.Join(dir, "files")
	f, err := os.Create(disk)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte("data"), 50_000), 1<<20)
	for _, failed := range []error{err, f.Truncate(8 << 20), f.Close(), os.Mkdir(archive, 0o700),
		os.WriteFile(filepath.Join(archive, "note"), []byte("hello"), 0o600), os.Symlink("/etc/passwd", filepath.Join(archive, "out")),
		os.WriteFile(filepath.Join(dir, "token"), []byte("secret"), 0o600)} {
		if failed != nil {
			t.Fatal(failed)
		}
	}
	h, done, err := exportHandler(task.Export{Version: task.Version, TokenDir: dir, HeaderSecret: "header", Manifests: []json.RawMessage{
		json.RawMessage(`{"kind":"DataVolume"}`), json.RawMessage(`{"kind":"VirtualMachine"}`)}, Volumes: []task.ExportedVolume{
		{Name: "root", Path: disk, Content: task.Disk}, {Name: "files", Path: archive, Content: task.Archive}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	server = httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server, disk
}

func ask(t *testing.T, address string, headers map[string]string) (int, http.Header, []byte, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(tlsserver.Token, "secret")
	for key, value := range headers {
		r.Header.Set(key, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, content, err
}

// TestExport: a client with the token gets the disk, whole and in parts, and no other client anything.
func TestExport(t *testing.T) {
	server, disk := exporting(t)
	want, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	base := server.URL + "/volumes/root/"
	for _, path := range []string{"disk.img", "disk.img.gz", "disk.qcow2", "nothing"} {
		for _, token := range []string{"", "secret2", "secre"} {
			if code, _, content, _ := ask(t, base+path, map[string]string{tlsserver.Token: token}); code != http.StatusUnauthorized || bytes.Contains(content, []byte("data")) {
				t.Errorf("%s with token %q: %d", path, token, code)
			}
			if code, _, _, _ := ask(t, base+path+"?x-kubevirt-export-token="+token, map[string]string{tlsserver.Token: ""}); code != http.StatusUnauthorized {
				t.Errorf("%s with token %q in its URL: %d", path, token, code)
			}
		}
	}
	code, header, got, err := ask(t, base+"disk.img", nil)
	if code != http.StatusOK || err != nil || !bytes.Equal(got, want) {
		t.Errorf("raw: %d, %d bytes, %v", code, len(got), err)
	}
	code, _, got, err = ask(t, base+"disk.img?x-kubevirt-export-token=secret", map[string]string{tlsserver.Token: ""})
	if code != http.StatusOK || err != nil || !bytes.Equal(got, want) {
		t.Errorf("with the token in its URL: %d, %d bytes, %v", code, len(got), err)
	}
	code, _, got, err = ask(t, base+"disk.img", map[string]string{"Range": "bytes=1048577-", "If-Range": header.Get("ETag")})
	if code != http.StatusPartialContent || err != nil || !bytes.Equal(got, want[1<<20+1:]) {
		t.Errorf("the rest: %d, %d bytes, %v", code, len(got), err)
	}
	code, _, got, err = ask(t, base+"disk.img.gz", nil)
	z, failed := gzip.NewReader(bytes.NewReader(got))
	if code != http.StatusOK || err != nil || failed != nil {
		t.Fatalf("gz: %d, %v, %v", code, err, failed)
	}
	if got, err = io.ReadAll(z); err != nil || !bytes.Equal(got, want) {
		t.Errorf("gz: %d bytes, %v", len(got), err)
	}
	code, qcow2, got, err := ask(t, base+"disk.qcow2", nil)
	if code != http.StatusOK || err != nil || !bytes.HasPrefix(got, []byte("QFI\xfb")) || len(got) > 1<<20 {
		t.Errorf("qcow2: %d, %d bytes, %v", code, len(got), err)
	}
	if qcow2.Get("ETag") == header.Get("ETag") {
		t.Error("two formats have one tag")
	}
}

// TestExportArchive: an archive comes as a tar file and file by file, and a link in it leads nowhere.
func TestExportArchive(t *testing.T) {
	server, _ := exporting(t)
	base := server.URL + "/volumes/files/"
	if code, _, got, err := ask(t, base+"disk.tar.gz", nil); code != http.StatusOK || err != nil || len(got) < 100 {
		t.Errorf("the archive: %d, %d bytes, %v", code, len(got), err)
	} else if names := members(t, got); !slices.Contains(names, "./note") {
		t.Errorf("the archive has %q", names)
	}
	if code, _, got, _ := ask(t, base+"dir/note", nil); code != http.StatusOK || string(got) != "hello" {
		t.Errorf("a file: %d, %s", code, got)
	}
	for _, path := range []string{"dir/out", "dir/../token", "dir/..%2ftoken", "dir/%2e%2e/token"} {
		if code, _, got, _ := ask(t, base+path, nil); code == http.StatusOK || strings.Contains(string(got), "root:") || string(got) == "secret" {
			t.Errorf("%s: %d, %s", path, code, got)
		}
	}
}

// members returns the names of the files in a compressed archive.
func members(t *testing.T, archive []byte) (names []string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

// TestExportChanged: a disk that changes while it is downloaded is not taken for a copy.
func TestExportChanged(t *testing.T) {
	server, disk := exporting(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/volumes/root/disk.img", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(tlsserver.Token, "secret")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := os.Chtimes(disk, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(answer.Body); err == nil {
		t.Errorf("%d bytes came, and the disk changed", len(got))
	}
}

// TestManifests: the objects come as documents of YAML or as one List, to clients with the token, and the Secret has the header
// that is asked for.
func TestManifests(t *testing.T) {
	server, _ := exporting(t)
	all, secret := server.URL+"/internal/manifests/all", server.URL+"/internal/manifests/secret"
	for _, address := range []string{all, secret} {
		if code, _, content, _ := ask(t, address, map[string]string{tlsserver.Token: "other"}); code != http.StatusUnauthorized || bytes.Contains(content, []byte("kind")) {
			t.Errorf("%s without the token: %d", address, code)
		}
	}
	code, header, got, err := ask(t, all, map[string]string{"Accept": "application/yaml"})
	if want := "---\n{\"kind\":\"DataVolume\"}\n---\n{\"kind\":\"VirtualMachine\"}\n"; code != http.StatusOK || err != nil || string(got) != want ||
		header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%d %v %q", code, err, got)
	}
	var list struct {
		Kind  string
		Items []struct {
			Kind       string
			Metadata   struct{ Name string }
			StringData map[string]string
		}
	}
	for address, want := range map[string]int{all: 2, secret: 1} {
		accept := map[string]string{"Accept": "application/json"}
		if address == all {
			accept = nil
		}
		_, _, got, err = ask(t, address, accept)
		if failed := json.Unmarshal(got, &list); err != nil || failed != nil || list.Kind != "List" || len(list.Items) != want {
			t.Fatalf("%s: %v %v %s", address, err, failed, got)
		}
		if s := list.Items[0]; address == secret && (s.Metadata.Name != "header" || s.StringData["token"] != "x-kubevirt-export-token:secret") {
			t.Errorf("%+v", s)
		}
		list.Items = nil
	}
}
