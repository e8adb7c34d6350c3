package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
)

// socket is a server and where it is reached.
type socket struct {
	path   string
	server *grpc.Server
}

// serve serves until the context ends, in the order given, so that the driver answers before it is registered. It returns nil if
// it was asked to end.
func serve(ctx context.Context, cancel context.CancelCauseFunc, sockets []*socket) error {
	for _, s := range sockets {
		listener, err := listen(ctx, s.path)
		if err != nil {
			return err
		}
		defer s.server.Stop()
		go func() {
			if err := s.server.Serve(listener); err != nil {
				cancel(fmt.Errorf("serve on %s: %w", s.path, err))
			}
		}()
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// listen takes a path over from a driver that ended without cleaning up. The pool's lock is held by then, so no other one
// runs.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return listener, nil
}
