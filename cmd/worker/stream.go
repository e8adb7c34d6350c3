package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-vm/berth/internal/stream"
	"github.com/berth-vm/berth/internal/task"
)

// streamFlags say what is served, and to whom.
type streamFlags struct {
	listen, target, address, chap string
	cache, size                   string
	credentials, ca, arch         string
	insecure, plainHTTP           bool
}

func (f *streamFlags) define(s *flag.FlagSet) {
	s.StringVar(&f.listen, "listen", ":3260", "`address` of the iSCSI target")
	s.StringVar(&f.target, "target", "iqn.2026-01.dev.berth:stream", "`name` of the target")
	s.StringVar(&f.address, "address", "", "`host:port` that discovery says the target is at; default: where it was asked")
	s.StringVar(&f.chap, "chap", "", "`directory` with the keys of a Secret of the type kubernetes.io/iscsi-chap; without it everybody may read")
	s.StringVar(&f.cache, "cache", "/cache", "`directory` for what was fetched; nothing else is in it")
	s.StringVar(&f.size, "cache-size", "10Gi", "most `bytes` in it")
	s.StringVar(&f.credentials, "credentials", "", "`directory` with the files accessKeyId and secretKey, or .dockerconfigjson")
	s.StringVar(&f.ca, "ca", "", "`directory` of PEM files to trust besides the system's roots")
	s.StringVar(&f.arch, "arch", "", "`architecture` to choose from an image's platforms")
	s.BoolVar(&f.insecure, "insecure", false, "do not verify the registry's certificate")
	s.BoolVar(&f.plainHTTP, "plain-http", false, "talk to the registry without TLS")
}

// streamImages is `worker stream`: a LUN for each image, fetched as it is read.
func streamImages(ctx context.Context, args []string, stderr io.Writer) int {
	var f streamFlags
	s := flag.NewFlagSet("worker stream", flag.ContinueOnError)
	s.SetOutput(stderr)
	f.define(s)
	if err := s.Parse(args); err != nil {
		return 2
	}
	logger := log.New(stderr, "", log.LstdFlags|log.LUTC)
	c, err := f.config(s.Args())
	if err != nil {
		fmt.Fprintf(stderr, "worker stream: %v\n", err)
		return 2
	}
	c.Log = logger.Printf
	if err := f.serve(ctx, c); err != nil {
		fmt.Fprintf(stderr, "worker stream: %v\n", err)
		return 1
	}
	return 0
}

func (f *streamFlags) serve(ctx context.Context, c stream.Config) error {
	server, err := stream.New(c)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	c.Log("serving %d images as %s at %s", len(c.Images), c.Target, l.Addr())
	return server.Run(ctx, l)
}

func (f *streamFlags) config(images []string) (stream.Config, error) {
	c := stream.Config{Target: f.target, Address: f.address, CacheDir: f.cache}
	if len(images) == 0 {
		return c, errors.New("say which images")
	}
	for _, image := range images {
		if !strings.Contains(image, "://") {
			image = "docker://" + image
		}
		c.Images = append(c.Images, task.Registry{URL: image, PlainHTTP: f.plainHTTP, Architecture: f.arch, Access: task.Access{
			CredentialsDir: f.credentials, CADir: f.ca, Insecure: f.insecure, HTTPProxy: os.Getenv("HTTP_PROXY"), HTTPSProxy: os.Getenv("HTTPS_PROXY"),
			NoProxy: os.Getenv("NO_PROXY"),
		}})
	}
	var err error
	if c.CacheLimit, err = parseSize(f.size); err != nil || f.chap == "" {
		return c, err
	}
	for name, to := range map[string]*string{"node.session.auth.username": &c.User, "node.session.auth.password": &c.Secret} {
		text, err := os.ReadFile(filepath.Join(f.chap, name))
		if err != nil {
			return c, fmt.Errorf("read the login: %w", err)
		}
		if *to = strings.TrimRight(string(text), "\n"); *to == "" {
			return c, fmt.Errorf("read the login: %s is empty", name)
		}
	}
	return c, nil
}
