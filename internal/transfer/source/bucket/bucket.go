// Package bucket reads the URLs of objects in buckets, which S3 and Google Cloud Storage spell alike. It does not check that the
// object exists.
package bucket

import (
	"net/url"
	"strings"

	"github.com/berth-vm/berth/internal/task"
)

// Parse makes scheme://bucket/key the URL it stands for at host, and leaves http(s) URLs of objects as they are but for
// user names and fragments.
func Parse(raw, scheme, host string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil { // which repeats the URL, and that may hold a password
		return nil, task.Errorf(task.BadTask, "the source's URL cannot be parsed: want %s://bucket/key or https://host/bucket/key",
			scheme)
	}
	named := u.Scheme == scheme
	if !named && u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
		return nil, task.Errorf(task.BadTask, "%q names no object: want %s://bucket/key or https://host/bucket/key", shown.String(),
			scheme)
	}
	if named {
		u = &url.URL{Scheme: "https", Host: host, Path: "/" + u.Host + u.Path, RawQuery: u.RawQuery}
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	return u, nil
}
