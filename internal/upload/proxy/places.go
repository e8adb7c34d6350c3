package proxy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/token"
)

// places limits concurrent uploads. A request first counts towards its claim and its namespace, each of which has a limit, so
// that one tenant cannot make the proxy refuse others. Then it waits for its worker, and only then takes one of the slots that
// the proxy has memory for.
type places struct {
	free                   chan struct{}
	perNamespace, perClaim int
	most                   int // requests of everybody that are in, waiting ones too

	mu         sync.Mutex
	in         int
	namespaces map[string]int
	claims     map[string]int // by UID
}

// waiting is how many requests there may be for each place: those that wait hold a connection and no data.
const waiting = 4

func newPlaces(o Options) *places {
	return &places{
		free: make(chan struct{}, o.Places), most: waiting * o.Places,
		perNamespace: limit(o.PerNamespace, waiting*o.Places), perClaim: limit(o.PerClaim, waiting*o.Places),
		namespaces: map[string]int{}, claims: map[string]int{},
	}
}

func limit(own, all int) int {
	if own <= 0 {
		return all
	}
	return own
}

// fullError: the request is to come back later.
type fullError string

func (e fullError) Error() string { return string(e) }

func full(format string, args ...any) error { return fullError(fmt.Sprintf(format, args...)) }

// enter counts a request, or returns which limit it exceeds. The returned function ends the request.
func (p *places) enter(c token.Claim) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.claims[c.UID] >= p.perClaim:
		return nil, full("%d requests for PVC %s/%s are going on, which is all one claim may have", p.perClaim, c.Namespace, c.Name)
	case p.namespaces[c.Namespace] >= p.perNamespace:
		return nil, full("%d uploads into namespace %s are going on, which is all one namespace may have", p.perNamespace, c.Namespace)
	case p.in >= p.most:
		return nil, full("%d requests are waiting, which is all there is room for", p.most)
	}
	p.count(c, 1)
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.count(c, -1)
	}), nil
}

func (p *places) count(c token.Claim, n int) {
	p.in += n
	if p.claims[c.UID] += n; p.claims[c.UID] == 0 {
		delete(p.claims, c.UID)
	}
	if p.namespaces[c.Namespace] += n; p.namespaces[c.Namespace] == 0 {
		delete(p.namespaces, c.Namespace)
	}
}

// take waits for a place, and says so if there is none in time. It is given back with the function.
func (p *places) take(ctx context.Context, patience time.Duration) (back func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case p.free <- struct{}{}:
		return func() { <-p.free }, nil
	case <-ctx.Done():
		return nil, full("%d uploads are going on, which is all there is room for", cap(p.free))
	}
}
