package progress

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-vm/berth/internal/task"
)

// Meter computes the progress of a transfer. Its methods may be called at any time, from any goroutine. The progress never decreases,
// and reaches 100 % only when the data is on stable storage.
type Meter struct {
	fetched atomic.Int64 // bytes read from the source by this run

	mu      sync.Mutex
	stage   task.Stage
	done    int64
	total   int64
	percent float64
	samples [rateSamples]sample
	next    int
	early   func() task.Early // nil: the disk is not to be used before it is full
	away    string            // why the source is waited for; empty: it is not
}

type sample struct {
	at   time.Time
	done int64
}

// rateSamples is the number of samples that the rate is measured over; progress is read about once a second.
const rateSamples = 5

func newMeter() *Meter { return &Meter{stage: task.Connecting} }

// Fetched counts n more bytes that were read from the source.
func (m *Meter) Fetched(n int64) { m.fetched.Add(n) }

// Reached says how many of the source's bytes are dealt with.
func (m *Meter) Reached(done int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if done > m.done {
		m.done, m.away = done, ""
	}
}

// Waits records that the transfer waits for its source, until more of it is processed.
func (m *Meter) Waits(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = OneLine(why)
}

// Serves adds the state of a disk that is served early to the progress.
func (m *Meter) Serves(early func() task.Early) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.early = early
}

// Enter begins a stage; total is how many of the source's bytes there are, 0 if that is not known.
func (m *Meter) Enter(s task.Stage, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stage = s
	m.total = max(m.total, total)
}

// almost is the progress of a transfer that has read the whole source but has not finished.
const almost = 99.9

// Progress returns the document of this moment.
func (m *Meter) Progress(now time.Time) task.Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.total > 0 {
		m.percent = max(m.percent, min(almost, 100*float64(m.done)/float64(m.total)))
	}
	if m.stage == task.Finished {
		m.percent = 100
	}
	oldest := m.samples[m.next]
	m.samples[m.next] = sample{now, m.done}
	m.next = (m.next + 1) % rateSamples
	if oldest.at.IsZero() {
		oldest = m.samples[0]
	}
	p := task.Progress{Version: task.Version, Stage: m.stage, Done: m.done, Total: m.total, Percent: m.percent}
	if m.early != nil {
		e := m.early()
		e.Away = m.away
		p.Early = &e
	}
	if passed := now.Sub(oldest.at); passed > 0 {
		p.Rate = int64(float64(m.done-oldest.done) / passed.Seconds())
	}
	return p
}
