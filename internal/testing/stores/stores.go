// Package stores has emulated object stores for tests, of Google and of S3. They run in a program of a module of their own, test/stores,
// which ends with the test's process. What they do not do, such as checking who asks, is left to the tests.
package stores

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The kinds of stores.
const (
	GCS = "gcs"
	S3  = "s3"
)

// Store is one object store, without objects at first. As a handler it answers as its kind does, with buckets in the path.
type Store struct {
	t       testing.TB
	address string
	name    string
}

var (
	made atomic.Int64
	// passOn hands answers on as they are.
	passOn = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}
)

// New makes a store of a kind that is gone when the test ends.
func New(t testing.TB, kind string) *Store {
	t.Helper()
	address, err := program()
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{t: t, address: address, name: fmt.Sprintf("%s-%d", kind, made.Add(1))}
	t.Cleanup(func() { s.send(http.MethodDelete, "all", "", nil) })
	return s
}

// ServeHTTP passes a request on to the store. It returns when the client stops reading, as a handler in this process would.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = "http", s.address
	out.Header.Set("Store", s.name)
	answer, err := passOn.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

// Put makes an object, and its bucket if that is not there. encoding is the Content-Encoding that it is stored with, or empty.
func (s *Store) Put(bucket, name, encoding string, content []byte) {
	s.t.Helper()
	s.send(http.MethodPut, bucket+"/"+name, encoding, content)
}

func (s *Store) send(method, put, encoding string, content []byte) {
	s.t.Helper()
	r, err := http.NewRequest(method, (&url.URL{Scheme: "http", Host: s.address}).String(), bytes.NewReader(content))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = http.Header{"Store": {s.name}, "Put": {put}, "Put-Encoding": {encoding}}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		s.t.Fatalf("%s in store %s: %s", put, s.name, text)
	}
}

// input is the program's, held for as long as this process is there.
var input io.Closer //nolint:unused // the program ends with it

// program runs the emulators once for all tests of this process and returns their address. They end when this process does, and with it
// the pipe to their input.
var program = sync.OnceValues(func() (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	run := exec.Command("go", "-C", dir, "run", ".")
	run.Env = append(os.Environ(), "CGO_ENABLED=0")
	run.Stderr = os.Stderr
	if input, err = run.StdinPipe(); err != nil {
		return "", err
	}
	out, err := run.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := run.Start(); err != nil {
		return "", fmt.Errorf("run the emulators of object stores: %w", err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", errors.Join(fmt.Errorf("start the emulators of object stores: %w", err), run.Wait())
	}
	return strings.TrimSpace(address), nil
})

// folder returns the directory of the program in the checkout that the test runs in.
func folder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		at := filepath.Join(dir, "test", "stores")
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("test/stores is in no folder above the test's")
		}
		dir = parent
	}
}
