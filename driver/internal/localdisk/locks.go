package localdisk

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// locks let one call at a time work on a volume.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when given back
}

// take waits until no one else has the lock; give gives it back. A caller whose time is over gets what the specification says
// about calls that overtake each other.
func (l *locks) take(ctx context.Context, key string) (give func(), err error) {
	for {
		l.mu.Lock()
		busy, taken := l.held[key]
		if !taken {
			done := make(chan struct{})
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			l.held[key] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				delete(l.held, key)
				close(done)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, status.Errorf(codes.Aborted, "another call still works on %s; ask again", key)
		}
	}
}
