package debian

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePlan(t *testing.T) {
	got, err := parsePlan(`
'http://host/pool/q/qemu-utils_7.2%2bdfsg_amd64.deb' qemu-utils_1%3a7.2+dfsg_amd64.deb 1292564 SHA256:00ff
'http://host/pool/b/base-files_12.4_amd64.deb' base-files_12.4_amd64.deb 70828 MD5Sum:11
'http://host/pool/p/pcre_1_amd64.deb' pcre_1_amd64.deb 5
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Package{
		{Name: "base-files", Version: "12.4", File: "base-files_12.4_amd64.deb", Size: 70828},
		{Name: "pcre", Version: "1", File: "pcre_1_amd64.deb", Size: 5},
		{Name: "qemu-utils", Version: "1:7.2+dfsg", File: "qemu-utils_1%3a7.2+dfsg_amd64.deb", Size: 1292564, SHA256: "00ff"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
}

func TestParsePlanRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, line := range []string{"'http://host/x' x.deb", "'http://host/x' x_1.deb 5 SHA256:0", "'http://host/x' x_1_all.deb big SHA256:0",
		"'http://host/x' x_%zz_all.deb 5 SHA256:0"} {
		if got, err := parsePlan(line); err == nil {
			t.Errorf("%s: read as %+v", line, got)
		}
	}
}

func TestReadList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "packages")
	if err := os.WriteFile(path, []byte("# a comment\n\none\n  two # why\nthree four\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadList(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one", "two", "three", "four"}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if _, err := ReadList(path + "x"); err == nil {
		t.Error("a missing list is no error")
	}
}
