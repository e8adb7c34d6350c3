package launcher

import (
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"testing"
)

// fakeMonitor is a monitor at whose other end is no QEMU: what is said there is the answer to each command. The last one ends it.
func fakeMonitor(t *testing.T, answer func(command string, arguments json.RawMessage) (text string, last bool)) *monitor {
	t.Helper()
	path := filepath.Join(t.TempDir(), "monitor")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, `{"QMP": {"version": {}}}`+"\n")
		for d, last := json.NewDecoder(c), false; !last; {
			var q struct {
				Execute   string          `json:"execute"`
				Arguments json.RawMessage `json:"arguments"`
			}
			if d.Decode(&q) != nil {
				return
			}
			var text string
			text, last = answer(q.Execute, q.Arguments)
			_, _ = io.WriteString(c, text+"\n")
		}
	}()
	m, err := dialMonitor(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
