package imagevm

import (
	"strings"
	"testing"
)

// TestRead: what a guest says is believed if it makes sense, and is short.
func TestRead(t *testing.T) {
	for said, want := range map[string]string{
		`{"status":0}` + "\n":               "the image's program ended with status 0",
		`{"status":137,"signal":"SIGKILL"}`: "the image's program was ended by the signal SIGKILL (status 137)",
		`{"status":127,"error":"no"}`:       "the image's program could not be run: no",
		"":                                  "",
		`{"status":256}`:                    "",
		`{"status":-1}`:                     "",
		`{"status":1}{"status":0}`:          "",
		`{"status":1,"signal":"` + strings.Repeat("S", 40) + `"}`: "",
	} {
		e := Read([]byte(said))
		if (e == nil) != (want == "") || e != nil && e.String() != want {
			t.Errorf("%s: %v, want %q", said, e, want)
		}
	}
	if e := Read([]byte(`{"status":127,"error":"` + strings.Repeat("x", 5000) + `"}`)); e == nil || len(e.Error) > maxError+5 {
		t.Error("what a guest says is not cut")
	}
}
