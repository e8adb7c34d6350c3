package sourcetest

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// Front is a proxy in front of a real server that disturbs its answers as networks do. Its methods set the faults of the next
// answers that carry data; without them all answers pass.
type Front struct {
	Server http.Handler
	// Data tells a request for the blob's bytes from those around it.
	Data func(*http.Request) bool

	mu     sync.Mutex
	faults []Fault
	every  Fault
	seen   int
	fresh  int // connections
}

// Fault changes one answer.
type Fault func(w http.ResponseWriter, r *http.Request, server http.Handler)

// Then makes these faults happen to the next answers, one each.
func (f *Front) Then(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, faults...)
}

// Always makes a fault happen to every answer that no other one is meant for; nil ends it.
func (f *Front) Always(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.every = fault
}

// Requests returns how many requests for data came.
func (f *Front) Requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

// Connections returns how many connections were made.
func (f *Front) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fresh
}

// Conn counts connections: it is the ConnState of the http.Server.
func (f *Front) Conn(_ net.Conn, s http.ConnState) {
	if s == http.StateNew {
		f.mu.Lock()
		f.fresh++
		f.mu.Unlock()
	}
}

func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := f.choose(r)
	if fault == nil {
		f.Server.ServeHTTP(w, r)
		return
	}
	fault(w, r, f.Server)
}

func (f *Front) choose(r *http.Request) Fault {
	if !f.Data(r) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	if len(f.faults) > 0 {
		next := f.faults[0]
		f.faults = f.faults[1:]
		return next
	}
	return f.every
}

// Pass lets an answer through.
func Pass(w http.ResponseWriter, r *http.Request, server http.Handler) { server.ServeHTTP(w, r) }

// Answer returns a status in place of the answer.
func Answer(code int) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, http.StatusText(code), code)
	}
}

// Reset resets the connection after n bytes of the body.
func Reset(n int) Fault {
	return cut(n, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn() // without TLS's own farewell
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // close with RST
		}
		_ = conn.Close()
	})
}

// Truncate ends the connection in good order after n bytes of the body, whatever length was announced.
func Truncate(n int) Fault {
	return cut(n, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
}

// Stall sends n bytes of the body and then nothing, until the client gives up.
func Stall(n int) Fault {
	return cut(n, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
}

// Dribble sends the body in pieces of n bytes, each in a packet of its own.
func Dribble(n int) Fault {
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		server.ServeHTTP(&dribble{ResponseWriter: w, n: n}, r)
	}
}

// NoRange has the server not see the range, as one does that has none. What it takes away it leaves in headers that
// begin with Hidden-, for servers that check a signature over all of them.
func NoRange(w http.ResponseWriter, r *http.Request, server http.Handler) {
	r = r.Clone(r.Context())
	r.Header.Set("Hidden-Range", r.Header.Get("Range"))
	r.Header.Set("Hidden-If-Range", r.Header.Get("If-Range"))
	r.Header.Del("Range")
	r.Header.Del("If-Range")
	server.ServeHTTP(w, r)
}

// Header changes the header of the answer before it is sent.
func Header(change func(http.Header)) Fault {
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		server.ServeHTTP(&headed{ResponseWriter: w, change: change}, r)
	}
}

// Label replaces the Content-Range of a range.
func Label(contentRange string) Fault {
	return Header(func(h http.Header) {
		if h.Get("Content-Range") != "" {
			h.Set("Content-Range", contentRange)
		}
	})
}

// Overstate announces n more bytes than come.
func Overstate(n int64) Fault {
	return Header(func(h http.Header) {
		if had, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil {
			h.Set("Content-Length", strconv.FormatInt(had+n, 10))
		}
	})
}

var errCut = errors.New("cut")

// cut lets n bytes of the body pass and does end to the connection then, also if the body is shorter.
func cut(n int, end func(http.ResponseWriter, *http.Request)) Fault {
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		server.ServeHTTP(&short{ResponseWriter: w, left: n}, r)
		_ = http.NewResponseController(w).Flush() // so that the bytes are on their way before the connection ends
		end(w, r)
	}
}

type short struct {
	http.ResponseWriter
	left int
}

func (s *short) Write(p []byte) (int, error) {
	if len(p) < s.left {
		s.left -= len(p)
		return s.ResponseWriter.Write(p)
	}
	n, err := s.ResponseWriter.Write(p[:s.left])
	s.left = 0
	return n, errors.Join(err, errCut)
}

type dribble struct {
	http.ResponseWriter
	n int
}

func (d *dribble) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := d.ResponseWriter.Write(p[done:min(len(p), done+d.n)])
		done += n
		if err == nil {
			err = http.NewResponseController(d.ResponseWriter).Flush()
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

type headed struct {
	http.ResponseWriter
	change func(http.Header)
	sent   bool
}

func (h *headed) WriteHeader(code int) {
	if !h.sent {
		h.sent = true
		h.change(h.Header())
	}
	h.ResponseWriter.WriteHeader(code)
}

func (h *headed) Write(p []byte) (int, error) {
	if !h.sent {
		h.WriteHeader(http.StatusOK)
	}
	return h.ResponseWriter.Write(p)
}
