package bucket

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"s3://bucket/a/b c":                   "https://s3.example/bucket/a/b%20c",
		"s3://bucket/a?versionId=7":           "https://s3.example/bucket/a?versionId=7",
		"https://host/b/k?generation=7":       "https://host/b/k?generation=7",
		"http://emulator:4443/b/k%2Fl":        "http://emulator:4443/b/k%2Fl",
		"http://user:topsecret@host/b/k#part": "http://host/b/k",
		"https://bucket.host/key":             "https://bucket.host/key",
	} {
		u, err := Parse(in, "s3", "s3.example")
		if err != nil || u.String() != want {
			t.Errorf("%s is at %v (%v), want %s", in, u, err, want)
		}
	}
}

func TestURLsThatAreNoObject(t *testing.T) {
	for _, in := range []string{"", "s3://", "s3://bucket", "s3://bucket/", "s3:///key", "ftp://host/b/k", "https://host/",
		"https:///b/k", "http://u:topsecret@h\x00/b/k", "http://u:topsecret@h", "gs://b/k"} {
		_, err := Parse(in, "s3", "s3.example")
		var e *task.Error
		if !errors.As(err, &e) || e.Reason != task.BadTask || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"s3://b/k", "https://h/b/k%2f?versionId=1", "http://user:pw@h/b/k#f", "s3://b/a//../b", "s3://b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := Parse(raw, "s3", "s3.example")
		if err != nil {
			return
		}
		if again, err := url.Parse(u.String()); err != nil || again.Host != u.Host {
			t.Errorf("%q became %q, which became %v (%v)", raw, u, again, err)
		}
		if u.User != nil || u.Host == "" {
			t.Errorf("%q became %q", raw, u)
		}
	})
}
