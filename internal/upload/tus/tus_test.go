package tus_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-vm/berth/internal/upload/tus"
)

func TestNumbers(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "10": 10, "9223372036854775807": 1<<63 - 1} {
		h := http.Header{tus.Offset: {text}, tus.Length: {text}}
		offset, err1 := tus.ParseOffset(h)
		length, err2 := tus.ParseLength(h)
		if err1 != nil || err2 != nil || offset != want || length != want {
			t.Errorf("%q: %d %v, %d %v", text, offset, err1, length, err2)
		}
	}
	for _, text := range []string{"", "-1", "+1", "01", "1.0", "1e3", " 1", "9223372036854775808", "0x10"} {
		if n, err := tus.ParseOffset(http.Header{tus.Offset: {text}}); !errors.Is(err, tus.ErrOffset) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

func TestMetadata(t *testing.T) {
	want := map[string]string{"filename": "my disk.img", "empty": "", tus.Format: tus.Raw}
	got, err := tus.ParseMetadata(tus.FormatMetadata(want))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, bad := range []string{"key value!", "a YQ==,a YQ==", ",", "key YQ", strings.Repeat("k", 5000)} {
		if got, err := tus.ParseMetadata(bad); err == nil {
			t.Errorf("accepted %.40q as %v", bad, got)
		}
	}
}

func TestID(t *testing.T) {
	same := map[string]string{tus.Fingerprint: "disk.img/5/6"}
	a, b := tus.NewID(10, same), tus.NewID(10, same)
	if a != b {
		t.Errorf("one file has two uploads: %s, %s", a, b)
	}
	if c := tus.NewID(11, same); c == a {
		t.Errorf("another length is the same upload: %s", c)
	}
	if one, other := tus.NewID(10, nil), tus.NewID(10, nil); one == other {
		t.Error("two files nobody can tell apart are one upload")
	}
	if !tus.NewID(10, map[string]string{tus.Format: tus.Raw}).Raw {
		t.Error("a raw disk is not known as one")
	}
	for _, id := range []tus.ID{a, tus.NewID(0, nil), tus.NewID(1<<62, map[string]string{tus.Format: tus.Raw})} {
		if got, err := tus.ParseID(id.String()); err != nil || got != id {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
	for _, bad := range []string{"", "-", "1-raw", "1-raw-", "01-raw-0123456789abcdef", "1-cooked-0123456789abcdef",
		"1-raw-0123456789ABCDEF", "1-raw-0123456789abcde/", "-1-raw-0123456789abcdef"} {
		if got, err := tus.ParseID(bad); err == nil {
			t.Errorf("accepted %q as %+v", bad, got)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add("5", "10", "filename ZGlzaw==,format cmF3", "1.0.0")
	f.Add("-1", "", "a b c", "0.2.2")
	f.Fuzz(func(t *testing.T, offset, length, metadata, version string) {
		h := http.Header{tus.Offset: {offset}, tus.Length: {length}, tus.Resumable: {version}}
		if n, err := tus.ParseOffset(h); err == nil && n < 0 {
			t.Errorf("offset %q is %d", offset, n)
		}
		n, err := tus.ParseLength(h)
		if err == nil && n < 0 {
			t.Errorf("length %q is %d", length, n)
		}
		if tus.CheckVersion(h) == nil && version != tus.Version {
			t.Errorf("version %q", version)
		}
		about, errAbout := tus.ParseMetadata(metadata)
		if err != nil || errAbout != nil {
			return
		}
		if again, err := tus.ParseMetadata(tus.FormatMetadata(about)); err != nil || !cmp.Equal(again, about) {
			t.Errorf("%q: %v becomes %v (%v)", metadata, about, again, err)
		}
		id := tus.NewID(n, about)
		if again, err := tus.ParseID(id.String()); err != nil || again != id {
			t.Errorf("%s: %+v, %v", id, again, err)
		}
	})
}

func FuzzID(f *testing.F) {
	f.Add("10-raw-0123456789abcdef")
	f.Add("10-image-zzzzzzzzzzzzzzzz")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := tus.ParseID(s)
		if err == nil && (id.String() != s || id.Length < 0) {
			t.Errorf("%q is %+v", s, id)
		}
	})
}
