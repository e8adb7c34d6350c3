package machine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

// Status is the state of one component, as its machine's init sees it.
type Status struct {
	Component string    `json:"component"`
	PID       int       `json:"pid,omitempty"` // inside the machine; 0 while it does not run
	Started   time.Time `json:"started"`
	Deaths    int       `json:"deaths,omitempty"`
	LastDeath string    `json:"lastDeath,omitempty"`
}

// supervisor starts components, starts them again when they die, and reaps whatever else ends in the machine.
type supervisor struct {
	machine plan.Machine
	layout  plan.Layout
	client  *http.Client

	mu      sync.Mutex
	status  []Status
	waiting map[int]chan unix.WaitStatus
}

func newSupervisor(m plan.Machine, l plan.Layout) *supervisor {
	s := &supervisor{machine: m, layout: l, client: newClient(l), waiting: map[int]chan unix.WaitStatus{}}
	for _, c := range m.Components {
		s.status = append(s.status, Status{Component: c.Name})
	}
	return s
}

func (s *supervisor) run(ctx context.Context) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for i := range s.machine.Components {
		go s.keep(ctx, i)
	}
	for {
		s.reap()
		<-children
	}
}

// reap collects every child that has ended: components, and orphans whose parents ended before them.
func (s *supervisor) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		s.mu.Lock()
		if ended := s.waiting[pid]; ended != nil {
			delete(s.waiting, pid)
			ended <- status
		}
		s.mu.Unlock()
	}
}

const (
	firstPause = time.Second
	longPause  = 10 * time.Second
	// settled is how long a component must have run for its next death to count as the first again.
	settled = time.Minute
)

// keep keeps one component running for as long as the machine lives.
func (s *supervisor) keep(ctx context.Context, i int) {
	c, pause := s.machine.Components[i], firstPause
	for ctx.Err() == nil {
		for _, url := range c.Needs {
			s.await(ctx, url)
		}
		began := time.Now()
		ended, err := s.start(c, i)
		death := ""
		if err != nil {
			death = err.Error()
		} else {
			death = describe(<-ended)
		}
		s.record(i, func(st *Status) { st.PID, st.Deaths, st.LastDeath = 0, st.Deaths+1, death })
		fmt.Fprintf(os.Stderr, "%s: %s: %s\n", time.Now().Format(time.RFC3339), c.Name, death)
		if time.Since(began) > settled {
			pause = firstPause
		}
		wait(ctx, pause)
		pause = min(2*pause, longPause)
	}
}

func (s *supervisor) start(c plan.Component, i int) (<-chan unix.WaitStatus, error) {
	log, err := openLog(s.layout.Log(s.machine.Name, c.Name))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	program, args := c.Program, c.Args
	if program == "" {
		// Not by path: the file may have been replaced by a newer build, and this machine continues with its own.
		program, args = "/proc/self/exe", append([]string{c.Name}, c.Args...)
	}
	cmd := exec.Command(program, args...)
	cmd.Args[0] = "kubebox"
	if c.Program != "" {
		cmd.Args[0] = c.Program
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.Env = []string{"PATH=" + plan.Programs, "HOME=/root", "LANG=C.UTF-8", "GOGC=200"} // memory for processor time: there is less of that
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ended := make(chan unix.WaitStatus, 1)
	s.mu.Lock() // reap must not see the process before it is registered
	err = cmd.Start()
	if err == nil {
		s.waiting[cmd.Process.Pid] = ended
	}
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	pid := cmd.Process.Pid
	_ = cmd.Process.Release() // reap waits for it
	s.record(i, func(st *Status) { st.PID, st.Started = pid, time.Now() })
	return ended, nil
}

// record changes a component's status and writes the machine's status file.
func (s *supervisor) record(i int, change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status[i])
	path := s.layout.Status(s.machine.Name)
	data, err := json.MarshalIndent(s.status, "", "  ")
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "write status: %v\n", err)
	}
}

// ReadStatus returns the state of the machine's components; nil if its init has not started them yet.
func ReadStatus(l plan.Layout, name string) ([]Status, error) {
	data, err := os.ReadFile(l.Status(name))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read status of machine %s: %w", name, err)
	}
	var out []Status
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("parse status of machine %s: %w", name, err)
	}
	return out, nil
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return "killed by " + status.Signal().String()
	}
	return fmt.Sprintf("ended with exit code %d", status.ExitStatus())
}

// await returns when the URL is answered with 200.
func (s *supervisor) await(ctx context.Context, url string) {
	for ctx.Err() == nil {
		if s.answers(ctx, url) {
			return
		}
		wait(ctx, 200*time.Millisecond)
	}
}

func (s *supervisor) answers(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := s.client.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// newClient trusts the cluster's authority, if there is one.
func newClient(l plan.Layout) *http.Client {
	roots := x509.NewCertPool()
	if ca, err := os.ReadFile(l.PKI("ca.crt")); err == nil {
		roots.AppendCertsFromPEM(ca)
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true,
	}}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
