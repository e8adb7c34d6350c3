// Package open turns a task's source into a blob. It is apart from package source because it knows every kind of
// source, and they all know that one.
package open

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/file"
	"github.com/berth-vm/berth/internal/transfer/source/gcs"
	"github.com/berth-vm/berth/internal/transfer/source/http"
	"github.com/berth-vm/berth/internal/transfer/source/peer"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
	"github.com/berth-vm/berth/internal/transfer/source/s3"
)

// kind is one kind of source that is opened. Those at a server have the schemes of their addresses.
type kind struct {
	schemes []string
	at      func(url string, a task.Access) task.Source
	open    func(context.Context, task.Source) (source.Blob, error)
	set     func(task.Source) bool
}

// kinds returns all kinds. It is a function because some kinds use others.
func kinds() []kind { return append(atServers(), others()...) }

func atServers() []kind {
	return []kind{{
		[]string{"http", "https"}, func(url string, a task.Access) task.Source { return task.Source{HTTP: &task.HTTP{URL: url, Access: a}} },
		func(ctx context.Context, s task.Source) (source.Blob, error) { return http.Open(ctx, *s.HTTP) },
		func(s task.Source) bool { return s.HTTP != nil },
	}, {
		[]string{"s3"}, func(url string, a task.Access) task.Source { return task.Source{S3: &task.S3{URL: url, Access: a}} },
		func(ctx context.Context, s task.Source) (source.Blob, error) { return s3.Open(ctx, *s.S3) },
		func(s task.Source) bool { return s.S3 != nil },
	}, {
		[]string{"gs"}, func(url string, a task.Access) task.Source { return task.Source{GCS: &task.GCS{URL: url, Access: a}} },
		func(ctx context.Context, s task.Source) (source.Blob, error) { return gcs.Open(ctx, *s.GCS) },
		func(s task.Source) bool { return s.GCS != nil },
	}, {
		[]string{"docker", "oci-archive"}, func(url string, a task.Access) task.Source {
			return task.Source{Registry: &task.Registry{URL: url, Access: a}}
		},
		func(ctx context.Context, s task.Source) (source.Blob, error) { return registry.Open(ctx, *s.Registry) },
		func(s task.Source) bool { return s.Registry != nil },
	}}
}

func others() []kind {
	return []kind{{
		open: func(_ context.Context, s task.Source) (source.Blob, error) { return file.Open(s.Local.Path) },
		set:  func(s task.Source) bool { return s.Local != nil },
	}, {
		open: func(ctx context.Context, s task.Source) (source.Blob, error) { return peer.Open(ctx, *s.Peer) },
		set:  func(s task.Source) bool { return s.Peer != nil },
	}, {
		open: func(ctx context.Context, s task.Source) (source.Blob, error) { return openBackup(ctx, *s.Backup) },
		set:  func(s task.Source) bool { return s.Backup != nil },
	}, {
		open: func(ctx context.Context, s task.Source) (source.Blob, error) { return openChain(ctx, *s.Chain) },
		set:  func(s task.Source) bool { return s.Chain != nil },
	}}
}

// Open finds the source's bytes; the caller closes the blob. Blank has none, and those of an upload come by themselves
// (package uploadbody), so both are errors here.
func Open(ctx context.Context, s task.Source) (source.Blob, error) {
	if n := count(s); n != 1 {
		return nil, task.Errorf(task.BadTask, "the task has %d sources instead of one", n)
	}
	for _, k := range kinds() {
		if k.set(s) {
			return k.open(ctx, s)
		}
	}
	return nil, task.Errorf(task.BadTask, "a blank disk or an upload is not opened")
}

// At returns the source at an address; false if no kind has its scheme.
func At(url string, a task.Access) (task.Source, bool) {
	scheme, _, _ := strings.Cut(url, ":")
	for _, k := range kinds() {
		if slices.Contains(k.schemes, scheme) {
			return k.at(url, a), true
		}
	}
	return task.Source{}, false
}

// count returns how many kinds of source are set.
func count(s task.Source) int {
	n, all := 0, reflect.ValueOf(s)
	for i := range all.NumField() {
		if !all.Field(i).IsNil() {
			n++
		}
	}
	return n
}
