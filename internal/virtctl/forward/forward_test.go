package forward

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// server returns an API server whose guests answer every message with what was asked for and the message.
func server(t *testing.T) *kube.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/off/") {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"VMI is not running"}`)
			return
		}
		upgrader := websocket.Upgrader{Subprotocols: []string{"plain.kubevirt.io"}}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			_, text, err := conn.ReadMessage()
			if err != nil {
				return
			}
			if string(text) == "bye\n" {
				_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
				return
			}
			_ = conn.WriteMessage(websocket.BinaryMessage, []byte(r.URL.Path+" "+string(text)))
		}
	}))
	t.Cleanup(s.Close)
	c, err := kube.New(&rest.Config{Host: s.URL}, "team")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const group = "/apis/subresources.kubevirt.io/v1/namespaces/"

// free returns a port that is not in use.
func free(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// said keeps what a forwarder says and tells when it has said it.
type said struct {
	mu    sync.Mutex
	lines chan string
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines <- strings.TrimSpace(string(p))
	return len(p), nil
}

func TestForward(t *testing.T) {
	tcp, udp, off := free(t), free(t), free(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &said{lines: make(chan string, 10)}
	ended := make(chan error, 2)
	go func() {
		f := &Forwarder{Client: server(t), Target: Target{Kind: "vm", Name: "web"}, Out: out}
		ended <- f.Run(ctx, "127.0.0.1", []Port{{tcp, 80, "tcp"}, {udp, 53, "udp"}})
	}()
	for _, want := range []string{fmt.Sprintf("forwarding tcp 127.0.0.1:%d to 80", tcp), fmt.Sprintf("forwarding udp 127.0.0.1:%d to 53", udp)} {
		if got := <-out.lines; got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	for port, want := range map[int]string{tcp: group + "team/virtualmachines/web/portforward/80/tcp hello", udp: group + "team/virtualmachines/web/portforward/53/udp hello"} {
		network := map[bool]string{true: "tcp", false: "udp"}[port == tcp]
		conn, err := net.Dial(network, fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			t.Fatal(err)
		}
		got, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || strings.TrimSpace(got) != want {
			t.Errorf("%s: got %q (%v), want %q", network, got, err, want)
		}
	}
	// A guest that is off: the connection ends, and the forwarder says why and continues.
	go func() {
		f := &Forwarder{Client: server(t), Target: Target{Kind: "vmi", Name: "off", Namespace: "other"}, Out: out}
		ended <- f.Run(ctx, "127.0.0.1", []Port{{off, 22, "tcp"}})
	}()
	<-out.lines
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", off))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of a guest that is off", n)
	}
	if got := <-out.lines; !strings.Contains(got, "connect to port 22 of vmi other/off: VMI is not running") {
		t.Errorf("it says %q", got)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("after ctrl-c: %v", err)
		}
	}
}

// TestStandard: a program's input and output are the guest's port.
func TestStandard(t *testing.T) {
	in, typed := io.Pipe()
	read, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Standard(t.Context(), server(t), Target{Kind: "vmi", Name: "web", Namespace: "other"}, Port{22, 22, "tcp"}, in, out)
	}()
	lines := bufio.NewReader(read)
	if _, err := io.WriteString(typed, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := lines.ReadString('\n'); err != nil || got != group+"other/virtualmachineinstances/web/portforward/22/tcp hello\n" {
		t.Errorf("got %q (%v)", got, err)
	}
	if _, err := io.WriteString(typed, "bye\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the guest ended it: %v", err)
	}
}
