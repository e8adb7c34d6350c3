package metadata

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestRoom: one user cannot take all the room, all together cannot take more than there is, and what is given back can be taken.
func TestRoom(t *testing.T) {
	t.Parallel()
	var r room
	var leaves []func()
	take := func(user string, most int) {
		t.Helper()
		for n := range most + 1 {
			leave, err := r.enter(user)
			if (err != nil) != (n == most) || err != nil && status.Code(err) != codes.ResourceExhausted {
				t.Fatalf("call %d of %s: %v", n, user, err)
			}
			if err == nil {
				leaves = append(leaves, leave)
			}
		}
	}
	for n := range calls / callsOfOne {
		take(fmt.Sprint(n), callsOfOne)
	}
	take("one more", 0)
	for _, leave := range leaves {
		leave()
	}
	if r.all != 0 || len(r.each) != 0 {
		t.Errorf("left are %d calls of %v", r.all, r.each)
	}
	take("one more", callsOfOne)
}
