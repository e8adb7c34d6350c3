// Package s3 reads an object of an S3 store: http(s)://host/bucket/key, a virtual-host URL of AWS, or s3://bucket/key (which is
// AWS itself). Requests are signed with minio's signer; package http does the reading. It lists nothing and writes nothing, so it
// needs no permission but s3:GetObject.
package s3

import (
	"context"
	"net"
	nethttp "net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/bucket"
	"github.com/berth-vm/berth/internal/transfer/source/http"
	"github.com/berth-vm/berth/internal/transfer/source/httpaccess"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// Open finds the object. Without credentials it is read anonymously. Its version is its ETag.
func Open(ctx context.Context, t task.S3) (source.Blob, error) { return open(ctx, t, retry.Default) }

func open(ctx context.Context, t task.S3, p retry.Policy) (source.Blob, error) {
	u, err := parse(t.URL)
	if err != nil {
		return nil, err
	}
	login, ok, err := httpaccess.Login(t.Access)
	if err != nil {
		return nil, err
	}
	base, err := httpaccess.Transport(t.Access)
	if err != nil {
		return nil, err
	}
	transport := nethttp.RoundTripper(base)
	if ok {
		transport = newSigner(base, login, u)
	} else if amazon(u.Host) {
		transport = newSigner(base, httpaccess.Credentials{}, u) // unsigned, but it still finds the bucket's region
	}
	return http.Get(ctx, http.Request{
		URL: u, Transport: transport, Policy: p, Header: nethttp.Header{"User-Agent": {httpaccess.UserAgent}},
	})
}

// parse finds the object's URL. The signature is over the path as S3 encodes it, so the request must bear it in that form
// and no other.
func parse(raw string) (*url.URL, error) {
	u, err := bucket.Parse(raw, "s3", "s3.amazonaws.com")
	if err != nil {
		return nil, err
	}
	u.RawPath = s3utils.EncodePath(u.Path)
	return u, nil
}

// amazon holds for AWS's own endpoints, where the region is part of the name.
func amazon(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = hostPort
	}
	return strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn")
}
