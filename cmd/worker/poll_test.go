package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
)

// TestPoll: the digest of a URL changes when what the server says of it does, and only then; a server that says nothing
// cannot be polled.
func TestPoll(t *testing.T) {
	etag := `"1"`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		_, _ = io.WriteString(w, "image")
	}))
	defer server.Close()
	ask := func(url string) task.Report {
		t.Helper()
		dir := t.TempDir()
		text, err := json.Marshal(task.Task{Version: task.Version, Source: task.Source{HTTP: &task.HTTP{URL: url}}})
		if err != nil {
			t.Fatal(err)
		}
		in, out := filepath.Join(dir, "task"), filepath.Join(dir, "report")
		if err := os.WriteFile(in, text, 0o600); err != nil {
			t.Fatal(err)
		}
		code := run(context.Background(), []string{"poll", "--task", in, "--report", out}, io.Discard, io.Discard)
		r := report(t, out)
		if (code == 0) != (r.Outcome == task.Done) {
			t.Errorf("exit code %d with %+v", code, r)
		}
		return r
	}
	first, again := ask(server.URL+"/disk"), ask(server.URL+"/disk")
	if first.Outcome != task.Done || !strings.HasPrefix(first.Digest, "sha256:") || first.Digest != again.Digest {
		t.Errorf("asked twice: %+v, %+v", first, again)
	}
	etag = `"2"`
	if next := ask(server.URL + "/disk"); next.Digest == first.Digest {
		t.Error("a new version has the old digest")
	}
	etag = ""
	if r := ask(server.URL + "/disk"); r.Outcome != task.Fatal || r.Digest != "" {
		t.Errorf("a server that says nothing: %+v", r)
	}
}

func TestDigestOf(t *testing.T) {
	if got := digestOf("image:sha256:ab layer:sha256:cd"); got != "sha256:ab" {
		t.Errorf("an image's digest is %s", got)
	}
	if a, b := digestOf("etag:1"), digestOf("etag:2"); a == b || len(a) != len("sha256:")+64 {
		t.Errorf("digests %s and %s", a, b)
	}
}
