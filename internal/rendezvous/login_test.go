package rendezvous

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLoginIsHandedOver: what is mounted in the holder's pod, as the kubelet mounts it, is in the launcher's directory.
func TestLoginIsHandedOver(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "made")
	for _, dir := range []string{"credentials/..2026", "headers/0"} {
		if err := os.MkdirAll(filepath.Join(from, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"credentials/..2026/key": "secret", "headers/0/a": "A: b"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"credentials/..data": "..2026", "credentials/key": "..data/key"} {
		if err := os.Symlink(target, filepath.Join(from, link)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := packLogin(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 2 { // every launcher that is introduced gets the whole
		if err := UnpackLogin(f, to); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"credentials/key": "secret", "headers/0/a": "A: b"} {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q: %v", name, got, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(to, "credentials/..data")); err == nil {
		t.Error("the kubelet's own links came along")
	}
}

// TestHostileLogin: what a holder hands over cannot leave its directory, and is quoted nowhere.
func TestHostileLogin(t *testing.T) {
	for _, text := range []string{`{"../out": "eA=="}`, `{"/etc/out": "eA=="}`, `{"a/../../out": "eA=="}`, `{"a": "hush`, ``} {
		f, err := os.CreateTemp(t.TempDir(), "login")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "in")
		if err := UnpackLogin(f, dir); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "out")); err == nil {
			t.Errorf("%s was written outside", text)
		}
	}
	if f, err := packLogin(filepath.Join(t.TempDir(), "nothing")); err != nil {
		t.Errorf("a disk without a login: %v", err)
	} else {
		_ = f.Close()
	}
}
