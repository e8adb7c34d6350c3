package metricsserver

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/connlimit"
)

const (
	askAgain = time.Minute            // how long an allowed token is remembered
	forget   = 10 * time.Minute       // how long a token is known that the API server was not asked about, or did not answer
	mostGood = 64                     // tokens that are known at a time
	pause    = 100 * time.Millisecond // between questions about unknown tokens: bounds the load that strangers cause at the API server
)

// gate lets those in whose token is good. Which tokens were good lately it knows by their sums.
type gate struct {
	may func(ctx context.Context, token string) (bool, error)
	now func() time.Time

	mu   sync.Mutex
	good map[[sha256.Size]byte]time.Time // when the API server said so
	next time.Time                       // when it may be asked about a token that is not known
}

func newGate(may func(context.Context, string) (bool, error), now func() time.Time) *gate {
	return &gate{may: may, now: now, good: map[[sha256.Size]byte]time.Time{}}
}

// only serves next to authorized clients. The others get a status and an empty body.
func (g *gate) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := g.judge(r); code != http.StatusOK {
			w.Header().Set("Connection", "close")
			w.WriteHeader(code)
			return
		}
		if c, ok := r.Context().Value(connection{}).(net.Conn); ok {
			connlimit.Know(c)
		}
		next.ServeHTTP(w, r)
	})
}

func (g *gate) judge(r *http.Request) int {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return http.StatusUnauthorized
	}
	sum := sha256.Sum256([]byte(token))
	known, ask := g.known(sum)
	switch {
	case !ask && !known:
		return http.StatusTooManyRequests
	case !ask:
		return http.StatusOK
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	may, err := g.may(ctx, token)
	switch {
	case err != nil && known:
		return http.StatusOK // while the API server is away, numbers are wanted most
	case err != nil:
		return http.StatusServiceUnavailable
	case !may:
		g.remember(sum, false)
		return http.StatusForbidden
	}
	g.remember(sum, true)
	return http.StatusOK
}

// known returns whether a token was accepted recently, and whether the API server has to be asked about it now. Unknown tokens
// wait for their turn; tokens accepted before do not.
func (g *gate) known(sum [sha256.Size]byte) (known, ask bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	when, known := g.good[sum]
	known = known && now.Sub(when) < forget
	switch {
	case known && now.Sub(when) < askAgain:
		return true, false
	case known:
		return true, true
	case now.Before(g.next):
		return false, false
	}
	g.next = now.Add(pause)
	return false, true
}

func (g *gate) remember(sum [sha256.Size]byte, good bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.good, sum)
	now := g.now()
	for other, when := range g.good {
		if now.Sub(when) > forget || good && len(g.good) >= mostGood {
			delete(g.good, other)
		}
	}
	if good {
		g.good[sum] = now
	}
}
