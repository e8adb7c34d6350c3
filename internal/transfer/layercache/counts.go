package layercache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Counts is the content of a cache, and its activity since the start.
type Counts struct {
	Layers  int64 `json:"layers"`  // that are there
	Bytes   int64 `json:"bytes"`   // that they take, and those that are being made
	Bound   int64 `json:"bound"`   // of these bytes
	Made    int64 `json:"made"`    // layers that were converted
	Shared  int64 `json:"shared"`  // layers that were handed out without that
	LetGo   int64 `json:"letGo"`   // layers that were removed
	Refused int64 `json:"refused"` // askers who were refused something
}

// Counts returns how it is now.
func (s *Cache) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{Layers: int64(len(s.layers)), Bytes: s.taken, Bound: s.bound, Made: s.made, Shared: s.shared, LetGo: s.letGo, Refused: s.refused}
}

// TurnAway counts a client that was refused before it could ask.
func (s *Cache) TurnAway() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused++
}

// A question about the counts is answered within this time, in so many bytes.
const (
	countsPatience = 2 * time.Second
	countsLongest  = 1 << 10
)

// TellCounts answers each connection with the counts, until the listener is closed.
func (s *Cache) TellCounts(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(countsPatience))
		_ = json.NewEncoder(c).Encode(s.Counts()) // a client that is gone asks again
		_ = c.Close()
	}
}

// ReadCounts returns the other side of TellCounts. It does not trust the cache, which reads untrusted images: any answer gives
// numbers, or an error without text from the answer. The connection is closed.
func ReadCounts(c net.Conn) (Counts, error) {
	var n Counts
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(countsPatience)); err != nil {
		return n, err
	}
	text, err := io.ReadAll(io.LimitReader(c, countsLongest+1))
	if err != nil {
		return n, fmt.Errorf("read the counts of the layers: %w", err)
	}
	if len(text) > countsLongest || json.Unmarshal(text, &n) != nil {
		return Counts{}, errors.New("the cache of layers does not say its counts")
	}
	for _, v := range []int64{n.Layers, n.Bytes, n.Bound, n.Made, n.Shared, n.LetGo, n.Refused} {
		if v < 0 {
			return Counts{}, errors.New("the cache of layers says that it has less than nothing")
		}
	}
	return n, nil
}
