// Package qmptest connects tests to the monitor of a QEMU, or to a monitor that the test itself answers for.
package qmptest

import (
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/qmp"
)

// Fake connects to a monitor that sends what answer returns for each command. It closes the connection after an answer that is the last.
func Fake(t *testing.T, answer func(command string, arguments json.RawMessage) (text string, last bool)) *qmp.Monitor {
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

// Await connects to the monitor of a QEMU that was just started.
func Await(t *testing.T, socket string) *qmp.Monitor {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var err error
	for began := time.Now(); time.Since(began) < 2*time.Minute; <-tick.C {
		var m *qmp.Monitor
		if m, err = qmp.Dial(t.Context(), socket); err == nil {
			return m
		}
	}
	t.Fatal(err)
	return nil
}
