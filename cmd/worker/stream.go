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
	"runtime/debug"
	"strings"

	"github.com/berth-vm/berth/internal/streamserver"
	"github.com/berth-vm/berth/internal/task"
)

// streamFlags configure what is served, and to which clients.
type streamFlags struct {
	listen, target, address, chap string
	nbd, health                   string
	volume, volumeAddress, secret string
	cache, size                   string
	credentials, ca, arch         string
	insecure, plainHTTP           bool
}

func (f *streamFlags) define(s *flag.FlagSet) {
	s.StringVar(&f.listen, "listen", ":3260", "`address` of the iSCSI target")
	s.StringVar(&f.target, "target", "iqn.2026-01.dev.berth:stream", "`name` of the target")
	s.StringVar(&f.address, "address", "", "`host:port` that discovery says the target is at; default: where it was asked")
	s.StringVar(&f.chap, "chap", "", "`directory` with the keys of a Secret of the type kubernetes.io/iscsi-chap; without it everybody may read")
	s.StringVar(&f.nbd, "nbd", "", "`address`, or unix:PATH, of an NBD server with the same disks; exports are called as LUNs are. It asks for no login")
	s.StringVar(&f.health, "health", "", "`address` that answers GET /healthz: whether all images are open")
	s.StringVar(&f.volume, "volume", "", "`address` to be asked for a volume at, as a container that makes volumes is; for one image")
	s.StringVar(&f.volumeAddress, "volume-address", "", "`host` that the answer says the target is at")
	s.StringVar(&f.secret, "volume-secret", "", "`name` of the Secret that the answer says machines log in with")
	s.StringVar(&f.cache, "cache", "/cache", "`directory` for what was fetched; nothing else is in it")
	s.StringVar(&f.size, "cache-size", "10Gi", "most `bytes` in it")
	s.StringVar(&f.credentials, "credentials", "", "`directory` with the files accessKeyId and secretKey, or .dockerconfigjson")
	s.StringVar(&f.ca, "ca", "", "`directory` of PEM files to trust besides the system's roots")
	s.StringVar(&f.arch, "arch", "", "`architecture` to choose from an image's platforms")
	s.BoolVar(&f.insecure, "insecure", false, "do not verify the registry's certificate")
	s.BoolVar(&f.plainHTTP, "plain-http", false, "talk to the registry without TLS")
}

// volumeKeys is where a container that makes volumes finds its certificate.
const volumeKeys = "/run/berth/volume"

// streamMemory is the limit for the Go runtime here: passes, fetches and answers to initiators are bounded to about this.
const streamMemory = 256 << 20

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
	debug.SetMemoryLimit(streamMemory)
	if err := f.serve(ctx, c); err != nil {
		fmt.Fprintf(stderr, "worker stream: %v\n", err)
		return 1
	}
	return 0
}

func (f *streamFlags) serve(ctx context.Context, c streamserver.Config) error {
	server, err := streamserver.New(c)
	if err != nil {
		return err
	}
	var at streamserver.Listeners
	for _, one := range []struct {
		address string
		to      *net.Listener
	}{{f.listen, &at.ISCSI}, {f.nbd, &at.NBD}, {f.volume, &at.Volume}, {f.health, &at.Health}} {
		network, address := "tcp", one.address
		if path, ok := strings.CutPrefix(address, "unix:"); ok {
			network, address = "unix", path
		}
		if address == "" {
			continue
		}
		if *one.to, err = (&net.ListenConfig{}).Listen(ctx, network, address); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	c.Log("serving %d images as %s at %s", len(c.Images), c.Target, at.ISCSI.Addr())
	return server.Run(ctx, at)
}

// check returns an error for flags that contradict each other.
func (f *streamFlags) check(images int) error {
	switch {
	case images == 0:
		return errors.New("say which images")
	case f.listen == "":
		return errors.New("--listen is needed")
	case f.volume != "" && (images != 1 || f.volumeAddress == ""):
		return errors.New("--volume needs --volume-address, and one image: a machine's volume is one disk")
	case f.nbd != "" && f.chap != "" && !strings.HasPrefix(f.nbd, "unix:"):
		return errors.New("NBD asks for no login, so that --chap would keep nobody out: give --nbd a unix:PATH, or leave --chap out")
	}
	return nil
}

func (f *streamFlags) config(images []string) (streamserver.Config, error) {
	c := streamserver.Config{Target: f.target, Address: f.address, CacheDir: f.cache,
		Volume: streamserver.Volume{Keys: volumeKeys, Host: f.volumeAddress, Secret: f.secret}}
	if err := f.check(len(images)); err != nil {
		return c, err
	}
	var err error
	if _, c.Volume.Port, err = net.SplitHostPort(f.listen); err != nil {
		return c, fmt.Errorf("--listen: %w", err)
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
	if c.CacheLimit, err = parseSize(f.size); err != nil || f.chap == "" {
		return c, err
	}
	c.Login = f.login
	_, _, err = f.login() // what is wrong is said at once
	return c, err
}

// login reads the user and secret for CHAP, as they are now.
func (f *streamFlags) login() (user, secret string, err error) {
	for name, to := range map[string]*string{"node.session.auth.username": &user, "node.session.auth.password": &secret} {
		text, err := os.ReadFile(filepath.Join(f.chap, name))
		if err != nil {
			return "", "", fmt.Errorf("read the login: %w", err)
		}
		if *to = strings.TrimRight(string(text), "\n"); *to == "" {
			return "", "", fmt.Errorf("read the login: %s is empty", name)
		}
	}
	return user, secret, nil
}
