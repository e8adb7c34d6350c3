package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
)

// receiveImage implements `worker receive`: it waits for an upload, from a command line or in a pod.
func receiveImage(ctx context.Context, args []string, stderr io.Writer) int {
	s := flag.NewFlagSet("worker receive", flag.ContinueOnError)
	s.SetOutput(stderr)
	to := s.String("to", "", "`target`: a block device, a file to make, or a directory with --archive")
	size := s.String("size", "", "final `size` of the disk, like 10Gi; default: the image's, or the device's")
	listen := s.String("listen", ":8080", "`address` to wait at")
	token := s.String("token", "", "`directory` with a file called token, which clients must send; without the file anybody may")
	tls := s.String("tls", "", "`directory` with tls.crt and tls.key; default: plain HTTP")
	archive := s.Bool("archive", false, "unpack a tar archive into a directory")
	preallocate := s.Bool("preallocate", false, "reserve all of the disk's blocks")
	progress := s.Int("progress", 0, "`port` to show progress at; 0 for none")
	report := s.String("report", "/dev/stdout", "`file` to write the report to")
	if err := s.Parse(args); err != nil {
		return 2
	}
	bytes, err := parseSize(*size)
	if err == nil && (*to == "" || s.NArg() > 0) {
		err = errors.New("--to is needed, and nothing but flags")
	}
	if err != nil {
		fmt.Fprintf(stderr, "worker receive: %v\n", err)
		return 2
	}
	t := task.Task{
		Version: task.Version, Volume: filepath.Base(*to),
		Source: task.Source{Upload: &task.Upload{Listen: *listen, TLSDir: *tls, TokenDir: *token}},
		Target: task.Target{Path: *to, Content: task.Disk, Size: bytes, Preallocate: *preallocate},
	}
	if _, err := os.Stat(filepath.Join(*token, "token")); *token == "" || errors.Is(err, fs.ErrNotExist) {
		t.Source.Upload.TokenDir = ""
	}
	if *archive {
		t.Target.Content = task.Archive
	}
	shown := ""
	if *progress != 0 {
		shown = ":" + strconv.Itoa(*progress)
	}
	return leave(carryOut(ctx, workOn(t, transfer.DefaultEvery, stderr), shown, stderr), *report, stderr)
}
