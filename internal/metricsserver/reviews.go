package metricsserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Reviews asks the API server whose a token is and what they may. It needs no Kubernetes client: of two kinds it needs a few fields.
type Reviews struct {
	URL    string
	Client *http.Client
	// Token is the program's own; nil: the client shows who it is.
	Token func() (string, error)
}

// account is the directory with a pod's own token and the authority of the API server.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster asks with the account of the pod that the program runs in.
func InCluster() (*Reviews, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("this is no pod of a cluster")
	}
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the API server's authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("the API server's authority has no certificate")
	}
	return &Reviews{
		URL: "https://" + net.JoinHostPort(host, port),
		Client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 2, MaxConnsPerHost: 4, IdleConnTimeout: 2 * time.Minute}},
		Token: func() (string, error) {
			text, err := os.ReadFile(filepath.Join(account, "token"))
			return strings.TrimSpace(string(text)), err
		},
	}, nil
}

type tokenReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token string `json:"token"`
	} `json:"spec"`
	Status struct {
		Authenticated bool `json:"authenticated"`
		User          user `json:"user"`
	} `json:"status"`
}

type user struct {
	Username string              `json:"username"`
	UID      string              `json:"uid"`
	Groups   []string            `json:"groups"`
	Extra    map[string][]string `json:"extra"`
}

type accessReview struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Spec       accessSpec `json:"spec"`
	Status     struct {
		Allowed bool `json:"allowed"`
		Denied  bool `json:"denied"`
	} `json:"status"`
}

type accessSpec struct {
	NonResourceAttributes struct {
		Path string `json:"path"`
		Verb string `json:"verb"`
	} `json:"nonResourceAttributes"`
	User   string              `json:"user"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// May reports whether the owner of a token may GET /metrics.
func (r *Reviews) May(ctx context.Context, token string) (bool, error) {
	who := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	who.Spec.Token = token
	if err := r.post(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", &who); err != nil {
		return false, fmt.Errorf("ask whose a token is: %w", err)
	}
	u := who.Status.User
	if !who.Status.Authenticated || u.Username == "" {
		return false, nil
	}
	may := accessReview{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview", Spec: accessSpec{User: u.Username, UID: u.UID, Groups: u.Groups, Extra: u.Extra}}
	may.Spec.NonResourceAttributes.Path, may.Spec.NonResourceAttributes.Verb = "/metrics", "get"
	if err := r.post(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &may); err != nil {
		return false, fmt.Errorf("ask what %s may: %w", u.Username, err)
	}
	return may.Status.Allowed && !may.Status.Denied, nil
}

// post sends a review and reads the answer into it.
func (r *Reviews) post(ctx context.Context, path string, review any) error {
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(r.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.Token != nil {
		token, err := r.Token()
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := r.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("the API server says %s", answer.Status)
	}
	return json.Unmarshal(text, review)
}
