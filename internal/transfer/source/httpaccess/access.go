// Package httpaccess turns task.Access (mounted directories and proxy settings) into what an HTTP client needs: credentials,
// trusted roots, a proxy and a transport tuned for large parallel reads. It looks at nothing but the task: neither the
// environment's proxy variables nor a user's configuration files. It knows no protocol above HTTP.
package httpaccess

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/berth-vm/berth/internal/task"
)

// The files of a CDI secret.
const (
	keyFile    = "accessKeyId"
	secretFile = "secretKey"
)

// fileLimit bounds what is read of one mounted file: a Secret or ConfigMap holds at most 1 MiB.
const fileLimit = 1 << 20

// UserAgent is the User-Agent header of requests.
const UserAgent = "berth-worker"

// Credentials are a user and a password, or an access key and its secret.
type Credentials struct{ User, Secret string }

// Login reads the credentials of a. There are none (ok is false) when no directory is given; a directory without the
// two files is an error that a mended Secret heals.
func Login(a task.Access) (c Credentials, ok bool, err error) {
	if a.CredentialsDir == "" {
		return Credentials{}, false, nil
	}
	if c.User, err = ReadFile(a.CredentialsDir, keyFile); err == nil {
		c.Secret, err = ReadFile(a.CredentialsDir, secretFile)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Credentials{}, false, task.Errorf(task.SourceDenied,
			"the source's secret needs the keys %s and %s: %w", keyFile, secretFile, err)
	}
	return c, err == nil, err
}

// ReadFile reads one file of a mounted Secret, without the line break that ends it when it was made with echo.
func ReadFile(dir, name string) (string, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, fileLimit+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	if len(b) > fileLimit {
		return "", task.Errorf(task.BadTask, "%s is larger than %d bytes", name, fileLimit)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// ReadDir reads every file of a mounted directory and of the directories in it, in order of their names. The entries
// that begin with ".." are how the kubelet swaps a mount's content and are passed over.
func ReadDir(dir string) (map[string]string, error) {
	found := map[string]string{}
	err := readDir(dir, "", 1, found)
	return found, err
}

func readDir(dir, prefix string, depth int, found map[string]string) error {
	entries, err := os.ReadDir(filepath.Join(dir, prefix))
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(dir, prefix), err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		name := filepath.Join(prefix, e.Name())
		info, err := os.Stat(filepath.Join(dir, name)) // entries of a Secret are links, so the entry's own type says little
		switch {
		case err != nil:
			return fmt.Errorf("read %s: %w", name, err)
		case info.IsDir() && depth > 0:
			err = readDir(dir, name, depth-1, found)
		case info.Mode().IsRegular():
			found[name], err = ReadFile(dir, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TLS returns the client configuration for a: the system's roots and those of CADir.
func TLS(a task.Access) (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: a.Insecure, //nolint:gosec // the user asked for it in the volume's source
	}
	if a.CADir == "" {
		return c, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // an image without roots: those of CADir are all there are
	}
	files, err := ReadDir(a.CADir)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	added := false
	for _, pem := range files {
		added = roots.AppendCertsFromPEM([]byte(pem)) || added
	}
	if !added {
		return nil, task.Errorf(task.SourceUntrusted,
			"none of the %d files in the source's certConfigMap holds a PEM certificate", len(files))
	}
	c.RootCAs = roots
	return c, nil
}

// Proxy chooses the proxy for a request from the task's settings alone.
func Proxy(a task.Access) func(*http.Request) (*url.URL, error) {
	c := httpproxy.Config{HTTPProxy: a.HTTPProxy, HTTPSProxy: a.HTTPSProxy, NoProxy: a.NoProxy}
	choose := c.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
}

// Transport makes a transport for a. Requests go over HTTP/1.1: parallel ranges want a connection each, where HTTP/2
// would put them all behind one TCP window.
func Transport(a task.Access) (*http.Transport, error) {
	conf, err := TLS(a)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		Proxy:                  Proxy(a),
		DialContext:            dialer.DialContext,
		TLSClientConfig:        conf,
		TLSHandshakeTimeout:    15 * time.Second,
		DisableCompression:     true, // the bytes as they are at the source, or sums and offsets are wrong
		MaxIdleConnsPerHost:    32,   // more than any transfer has fetchers
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		ReadBufferSize:         128 << 10, // reads of at least this size go straight to the socket
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t, nil
}
