package s3

import (
	"bytes"
	"encoding/xml"
	"io"
	nethttp "net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/berth-vm/berth/internal/transfer/source/httpaccess"
)

// emptySHA256 is the digest of a GET's body.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

const defaultRegion = "us-east-1"

// signing signs each request to the object's host for the bucket's region, which it learns from the server: asking for
// it beforehand would take a permission that reading does not.
type signing struct {
	base  *nethttp.Transport
	login httpaccess.Credentials // empty: send unsigned
	host  string                 // as in the task

	mu     sync.Mutex
	region string
}

func newSigner(base *nethttp.Transport, login httpaccess.Credentials, u *url.URL) *signing {
	region := s3utils.GetRegionFromURL(*u)
	if region == "" {
		region = defaultRegion
	}
	return &signing{base: base, login: login, host: u.Host, region: region}
}

// CloseIdleConnections is called by http.Client.
func (s *signing) CloseIdleConnections() { s.base.CloseIdleConnections() }

func (s *signing) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	if r.URL.Host != s.host {
		return s.base.RoundTrip(r) // where a redirect led; the signature is for the store alone
	}
	s.mu.Lock()
	region := s.region
	s.mu.Unlock()
	resp, err := s.base.RoundTrip(s.signed(r, region))
	if err != nil {
		return nil, err
	}
	right := regionOf(resp)
	if right == "" || right == region {
		return resp, nil
	}
	_ = resp.Body.Close() // its answer was the region
	s.mu.Lock()
	s.region = right
	s.mu.Unlock()
	return s.base.RoundTrip(s.signed(r, right))
}

// signed returns a copy of r for a region, which for AWS is also another host.
func (s *signing) signed(r *nethttp.Request, region string) *nethttp.Request {
	r = r.Clone(r.Context())
	if (r.URL.Host == "s3.amazonaws.com" || globalBucket(r.URL.Host)) && region != defaultRegion {
		r.URL.Host = strings.TrimSuffix(r.URL.Host, "amazonaws.com") + region + ".amazonaws.com"
		r.Host = r.URL.Host
	}
	if s.login == (httpaccess.Credentials{}) {
		return r
	}
	r.Header.Set("X-Amz-Content-Sha256", emptySHA256)
	return signer.SignV4(*r, s.login.User, s.login.Secret, "", region)
}

// globalBucket holds for bucket.s3.amazonaws.com.
func globalBucket(host string) bool { return strings.HasSuffix(host, ".s3.amazonaws.com") }

// regionName matches valid regions, so that an answer cannot put other text into a host name.
var regionName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// regionOf returns the region that a refusal names, if the refusal is about the region.
func regionOf(resp *nethttp.Response) string {
	switch resp.StatusCode {
	case nethttp.StatusMovedPermanently, nethttp.StatusTemporaryRedirect, nethttp.StatusBadRequest, nethttp.StatusForbidden:
	default:
		return ""
	}
	region := resp.Header.Get("X-Amz-Bucket-Region")
	if region == "" && resp.Body != nil {
		const enough = 16 << 10
		text, err := io.ReadAll(io.LimitReader(resp.Body, enough))
		resp.Body = &replayed{Reader: io.MultiReader(bytes.NewReader(text), resp.Body), Closer: resp.Body}
		var refusal struct {
			Region string `xml:"Region"`
		}
		if err == nil && xml.Unmarshal(text, &refusal) == nil {
			region = refusal.Region
		}
	}
	if !regionName.MatchString(region) {
		return ""
	}
	return region
}

// replayed is a body whose beginning was read already.
type replayed struct {
	io.Reader
	io.Closer
}
