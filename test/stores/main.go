// Command stores emulates Google Cloud Storage and S3 for tests, until its input ends. It is a program, and a module of its own, so that
// Berth's go.mod has nothing of what the emulators require.
//
// It prints the address that it listens at. The header Store of a request names the store that is meant, whose name begins with gcs or
// s3; it is made when it is first named. With the header Put, PUT makes an object of that name, BUCKET/NAME, and DELETE forgets the store.
// What the emulators do not do, such as checking who asks, is left to the tests.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// host is the only name that the emulator of Google's storage answers to.
const host = "stores"

// store is one emulator.
type store struct {
	http.Handler
	put  func(bucket, name, encoding string, content []byte) error
	stop func()
}

func newStore(name string) (*store, error) {
	switch {
	case strings.HasPrefix(name, "gcs"):
		return newGCS()
	case strings.HasPrefix(name, "s3"):
		return newS3(), nil
	}
	return nil, fmt.Errorf("%q is neither gcs nor s3", name)
}

func newGCS() (*store, error) {
	s, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, PublicHost: host})
	if err != nil {
		return nil, err
	}
	return &store{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Host = host
			s.HTTPHandler().ServeHTTP(w, r)
		}),
		put: func(bucket, name, encoding string, content []byte) error {
			s.CreateObject(fakestorage.Object{
				ObjectAttrs: fakestorage.ObjectAttrs{BucketName: bucket, Name: name, ContentEncoding: encoding}, Content: content})
			return nil
		},
		stop: s.Stop,
	}, nil
}

func newS3() *store {
	backend := s3mem.New()
	return &store{
		Handler: gofakes3.New(backend).Server(),
		put: func(bucket, name, _ string, content []byte) error {
			if there, err := backend.BucketExists(bucket); err != nil {
				return err
			} else if !there {
				if err := backend.CreateBucket(bucket); err != nil {
					return err
				}
			}
			_, err := backend.PutObject(bucket, name, nil, bytes.NewReader(content), int64(len(content)), nil)
			return err
		},
		stop: func() {},
	}
}

// stores are those that tests have named, by their names.
type stores struct {
	mu  sync.Mutex
	all map[string]*store
}

func (s *stores) named(name string) (*store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name] == nil {
		made, err := newStore(name)
		if err != nil {
			return nil, err
		}
		s.all[name] = made
	}
	return s.all[name], nil
}

func (s *stores) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.all[name]; one != nil {
		one.stop()
	}
	delete(s.all, name)
}

func (s *stores) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, put := r.Header.Get("Store"), r.Header.Get("Put")
	r.Header.Del("Store")
	one, err := s.named(name)
	switch {
	case err != nil:
	case put == "":
		one.ServeHTTP(w, r)
	case r.Method == http.MethodDelete:
		s.forget(name)
	default:
		var content []byte
		if content, err = io.ReadAll(r.Body); err == nil {
			bucket, object, _ := strings.Cut(put, "/")
			err = one.put(bucket, object, r.Header.Get("Put-Encoding"), content)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "stores:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	server := &http.Server{Handler: &stores{all: map[string]*store{}}, ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, "stores:", server.Serve(l))
	os.Exit(1)
}
