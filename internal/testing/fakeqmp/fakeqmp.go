// Package fakeqmp is a QEMU monitor with no QEMU behind it: a test answers its commands.
package fakeqmp

import (
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/launcher/qmp"
)

// Dial connects to a monitor that sends what answer returns for each command. It closes the connection after an answer that is the last.
func Dial(t *testing.T, answer func(command string, arguments json.RawMessage) (text string, last bool)) *qmp.Monitor {
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
	m, err := qmp.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
