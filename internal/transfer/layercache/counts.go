package layercache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Counts is what a cache holds, and what it has done since it was started.
type Counts struct {
	Layers  int64 `json:"layers"`  // that are there
	Bytes   int64 `json:"bytes"`   // that they take, and those that are being made
	Bound   int64 `json:"bound"`   // of these bytes
	Made    int64 `json:"made"`    // layers that were converted
	Shared  int64 `json:"shared"`  // layers that were handed out without that
	LetGo   int64 `json:"letGo"`   // layers that were removed
	Refused int64 `json:"refused"` // askers who were refused something
}

// Counts is how it is now.
func (s *Cache) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{Layers: int64(len(s.layers)), Bytes: s.taken, Bound: s.bound, Made: s.made, Shared: s.shared, LetGo: s.letGo, Refused: s.refused}
}

// TurnAway counts somebody who was not even listened to.
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

// TellCounts answers whoever connects with the counts, one after the other, until the listener is closed.
func (s *Cache) TellCounts(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(countsPatience))
		_ = json.NewEncoder(c).Encode(s.Counts()) // whoever has gone asks again
		_ = c.Close()
	}
}

// ReadCounts is the other side of TellCounts. It does not trust the cache, which reads what strangers wrote: whatever it says, numbers come of it, or an error
// that quotes nothing. The connection is closed.
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
