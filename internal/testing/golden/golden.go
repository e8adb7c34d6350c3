// Package golden compares what a test made with a file in its testdata, and writes the file again where -update is given. It does
// not know what the files hold.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the tests made into testdata, for a person to review")

// Equal fails the test unless the file holds what it made.
func Equal[T string | []byte](t *testing.T, path string, got T) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is no longer what comes out; 'go test' with -update writes it, if this is meant (-want +got):\n%s", path, diff)
	}
}
