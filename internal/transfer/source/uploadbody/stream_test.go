package uploadbody

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/transfer/source"
)

func TestConformance(t *testing.T) {
	content := sourcetest.Content(1, 300_001)
	for name, size := range map[string]int64{"known size": int64(len(content)), "unknown size": -1} {
		t.Run(name, func(t *testing.T) {
			sourcetest.Read(t, content, func(*testing.T) source.Blob {
				return New("upload", io.NopCloser(bytes.NewReader(content)), size)
			})
		})
	}
}

func TestStreamIsReadOnce(t *testing.T) {
	b := New("upload", io.NopCloser(bytes.NewReader(nil)), -1)
	if _, err := b.Open(t.Context(), 0, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(t.Context(), 0, -1); err == nil {
		t.Error("a stream was opened twice")
	}
}

func TestStreamThatEndsEarly(t *testing.T) {
	b := New("upload", io.NopCloser(bytes.NewReader(make([]byte, 99))), 100)
	got, err := sourcetest.Get(t.Context(), b, 0, -1)
	sourcetest.Fails(t, err, task.SourceTruncated)
	if len(got) != 99 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %d bytes and %v", len(got), err)
	}
}

func TestCancelUnblocksARead(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	body, err := New("upload", r, -1).Open(ctx, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	go cancel()
	if _, err := body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled read says %v", err)
	}
}
