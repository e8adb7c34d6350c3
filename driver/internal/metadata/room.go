package metadata

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// How many calls are answered at a time, so that one user who reads slowly leaves room for others.
const (
	calls      = 64
	callsOfOne = 16 // of one user
)

// room counts the calls that are being answered.
type room struct {
	mu   sync.Mutex
	all  int
	each map[string]int
}

// enter lets a user's call in, or refuses it; leave gives its place back.
func (r *room) enter(user string) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.all == calls:
		return nil, status.Errorf(codes.ResourceExhausted, "%d calls are being answered; ask again", calls)
	case r.each[user] == callsOfOne:
		return nil, status.Errorf(codes.ResourceExhausted, "%d calls of %s are being answered; ask again", callsOfOne, user)
	}
	if r.each == nil {
		r.each = map[string]int{}
	}
	r.all++
	r.each[user]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all--
		if r.each[user]--; r.each[user] == 0 {
			delete(r.each, user)
		}
	}, nil
}
