// Package open turns a task's source into a blob. It is apart from package source because it knows every kind of
// source, and they all know that one.
package open

import (
	"context"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/file"
	"github.com/berth-vm/berth/internal/transfer/source/gcs"
	"github.com/berth-vm/berth/internal/transfer/source/http"
	"github.com/berth-vm/berth/internal/transfer/source/peer"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
	"github.com/berth-vm/berth/internal/transfer/source/s3"
)

// Open finds the source's bytes; the caller closes the blob. Blank has none, and those of an upload come by themselves
// (package stream), so both are errors here.
func Open(ctx context.Context, s task.Source) (source.Blob, error) {
	if n := count(s); n != 1 {
		return nil, task.Errorf(task.BadTask, "the task has %d sources instead of one", n)
	}
	switch {
	case s.HTTP != nil:
		return http.Open(ctx, *s.HTTP)
	case s.S3 != nil:
		return s3.Open(ctx, *s.S3)
	case s.GCS != nil:
		return gcs.Open(ctx, *s.GCS)
	case s.Registry != nil:
		return registry.Open(ctx, *s.Registry)
	case s.Local != nil:
		return file.Open(s.Local.Path)
	case s.Peer != nil:
		return peer.Open(ctx, *s.Peer)
	}
	return nil, task.Errorf(task.BadTask, "a blank disk or an upload is not opened")
}

// count is how many kinds of source are set.
func count(s task.Source) int {
	n := 0
	for _, set := range []bool{s.HTTP != nil, s.S3 != nil, s.GCS != nil, s.Registry != nil, s.Blank != nil, s.Upload != nil,
		s.Local != nil, s.Peer != nil} {
		if set {
			n++
		}
	}
	return n
}
