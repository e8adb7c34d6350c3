package vmexport

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	export "github.com/berth-vm/berth/api/export/v1beta1"
)

func answers(code int, tag string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Etag": {tag}, "Accept-Ranges": {"bytes"}}}
}

// TestResume: what one command has received is there for the next, unless the volume is another by then; and a file that is not
// whole never has the name that the user gave.
func TestResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	content := append(make([]byte, 3<<20), bytes.Repeat([]byte("x"), 5000)...)
	content = append(content, make([]byte, 100_000)...)
	receive := func(code int, tag string, from, to int, format export.Format) *target {
		t.Helper()
		d, err := newTarget(path, nil)
		if err == nil {
			err = d.begin(answers(code, tag), format)
		}
		if err == nil {
			err = d.copy(bytes.NewReader(content[from:to]), func(int64) {})
		}
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if err := receive(http.StatusOK, `"a"`, 0, 3<<20+100, export.Raw).end(false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file that is not whole has its name")
	}
	d, err := newTarget(path, nil)
	if err != nil || d.at != 3<<20+100 || d.tag != `"a"` {
		t.Fatalf("the next command begins at %d of %s, %v", d.at, d.tag, err)
	}
	_ = d.file.Close()
	if d := receive(http.StatusOK, `"b"`, 0, 1000, export.Raw); d.at != 1000 {
		t.Errorf("a volume that changed is gone on with: %d", d.at)
	} else if err := d.end(false); err != nil {
		t.Fatal(err)
	}
	if err := receive(http.StatusPartialContent, `"b"`, 1000, len(content), export.Raw).end(true); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes of %d, %v", len(got), len(content), err)
	}
	left, err := filepath.Glob(path + ".*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
