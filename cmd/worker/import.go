package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
	"github.com/berth-vm/berth/internal/transfer/source/open"
)

// importFlags describe an import on the command line, instead of a task.
type importFlags struct {
	from, to, size, checksum string
	credentials, ca, arch    string
	headers                  list
	insecure, plainHTTP      bool
	preallocate, archive     bool
	quiet, raw               bool
}

type list []string

func (l *list) String() string     { return strings.Join(*l, ", ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func (f *importFlags) define(s *flag.FlagSet) {
	s.StringVar(&f.from, "from", "", "`source`: http(s)://, s3://, gs://, docker://, oci-archive:// or a path")
	s.StringVar(&f.to, "to", "", "`target`: a block device, a file to make, or a directory with --archive")
	s.StringVar(&f.size, "size", "", "final `size` of the disk, like 10Gi; default: the image's, or the device's")
	s.StringVar(&f.checksum, "checksum", "", "`algorithm:hex` of the source's bytes")
	s.StringVar(&f.credentials, "credentials", "", "`directory` with the files accessKeyId and secretKey")
	s.StringVar(&f.ca, "ca", "", "`directory` of PEM files to trust besides the system's roots")
	s.StringVar(&f.arch, "arch", "", "`architecture` to choose from a container image's platforms")
	s.Var(&f.headers, "header", "`\"Name: value\"` to send, may be repeated")
	s.BoolVar(&f.insecure, "insecure", false, "do not verify the server's certificate")
	s.BoolVar(&f.plainHTTP, "plain-http", false, "talk to the registry without TLS")
	s.BoolVar(&f.preallocate, "preallocate", false, "reserve all of the disk's blocks")
	s.BoolVar(&f.archive, "archive", false, "unpack a tar archive into a directory")
	s.BoolVar(&f.raw, "raw", false, "the bytes are a raw disk: never look for a format in them")
	s.BoolVar(&f.quiet, "quiet", false, "no progress bar")
}

// importImage implements `worker import`: an import from command-line flags instead of a task.
func importImage(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var f importFlags
	s := flag.NewFlagSet("worker import", flag.ContinueOnError)
	s.SetOutput(stderr)
	f.define(s)
	if err := s.Parse(args); err != nil {
		return 2
	}
	t, err := f.task()
	if err == nil && s.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", s.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "worker import: %v\n", err)
		return 2
	}
	work := transfer.New(t)
	stop := func() {}
	if !f.quiet {
		stop = draw(stderr, work.Progress)
	}
	r := work.Run(ctx)
	stop()
	if r.Outcome != task.Done {
		fmt.Fprintf(stderr, "worker import: %s: %s\n", r.Reason, r.Detail)
		return 1
	}
	fmt.Fprintf(stdout, "%s: %s, %s disk from %s read", f.to, r.Format, inBytes(r.Virtual), inBytes(r.Read))
	for _, more := range []string{r.Digest, r.Detail} {
		if more != "" {
			fmt.Fprintf(stdout, ", %s", more)
		}
	}
	fmt.Fprintln(stdout)
	return 0
}

func (f *importFlags) task() (task.Task, error) {
	t := task.Task{Version: task.Version, Volume: filepath.Base(f.to), Checksum: f.checksum, Raw: f.raw,
		Target: task.Target{Path: f.to, Content: task.Disk, Preallocate: f.preallocate}}
	if f.from == "" || f.to == "" {
		return t, errors.New("--from and --to are needed")
	}
	if f.archive {
		t.Target.Content = task.Archive
	}
	var err error
	if t.Target.Size, err = parseSize(f.size); err != nil {
		return t, err
	}
	t.Source, err = f.source()
	return t, err
}

func (f *importFlags) source() (task.Source, error) {
	a := task.Access{CredentialsDir: f.credentials, CADir: f.ca, Insecure: f.insecure, HTTPProxy: os.Getenv("HTTP_PROXY"),
		HTTPSProxy: os.Getenv("HTTPS_PROXY"), NoProxy: os.Getenv("NO_PROXY")}
	scheme, _, found := strings.Cut(f.from, "://")
	if !found {
		path, err := filepath.Abs(f.from)
		return task.Source{Local: &task.Local{Path: path, Raw: f.raw}}, err
	}
	if _, err := url.Parse(f.from); err != nil {
		return task.Source{}, fmt.Errorf("--from: %w", err)
	}
	s, known := open.At(f.from, a)
	switch {
	case !known:
		return s, fmt.Errorf("--from: do not know %s://", scheme)
	case s.HTTP != nil:
		s.HTTP.Headers = f.headers
	case s.Registry != nil:
		s.Registry.Architecture, s.Registry.PlainHTTP = f.arch, f.plainHTTP
	}
	return s, nil
}

// draw shows a bar until the returned function is called.
func draw(w io.Writer, progress func() task.Progress) (stop func()) {
	tick := time.NewTicker(time.Second / 2)
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(w, "\r%s\x1b[K", bar(progress()))
			case <-end:
				fmt.Fprintf(w, "\r%s\x1b[K\n", bar(progress()))
				return
			}
		}
	}()
	return func() {
		tick.Stop()
		close(end)
		<-done
	}
}

// barWidth leaves room for the numbers on a line of 80.
const barWidth = 30

func bar(p task.Progress) string {
	full := int(p.Percent * barWidth / 100)
	of := ""
	if p.Total > 0 {
		of = " of " + inBytes(p.Total)
	}
	return fmt.Sprintf("[%-*s] %5.1f%% %s%s, %s/s", barWidth, strings.Repeat("=", full), p.Percent, inBytes(p.Done), of, inBytes(p.Rate))
}
