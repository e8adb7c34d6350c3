package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestBackupHook: a guest without an agent, or one that does not run, does not fail a backup; one that cannot be frozen does.
func TestBackupHook(t *testing.T) {
	for name, c := range map[string]struct {
		hook  string
		said  launcherapi.Said
		away  bool
		asked string
		fails bool
	}{
		"frozen":       {hook: launcherapi.PreBackupVerb, asked: "fsfreeze 300\n"},
		"thawed":       {hook: launcherapi.PostBackupVerb, asked: "fsthaw\n"},
		"no agent":     {hook: launcherapi.PreBackupVerb, asked: "fsfreeze 300\n", said: launcherapi.Said{Refused: "no", NoAgent: true}},
		"refused":      {hook: launcherapi.PreBackupVerb, asked: "fsfreeze 300\n", said: launcherapi.Said{Refused: "no"}, fails: true},
		"does not run": {hook: launcherapi.PreBackupVerb, away: true},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			asked := make(chan string, 1)
			if !c.away {
				l, err := net.Listen("unix", socket)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go func() {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					defer conn.Close()
					line, _ := bufio.NewReader(conn).ReadString('\n')
					asked <- line
					_ = json.NewEncoder(conn).Encode(c.said)
				}()
			}
			if err := backupHook(c.hook, socket, io.Discard); (err != nil) != c.fails {
				t.Errorf("the hook says %v", err)
			}
			if !c.away {
				if got := <-asked; got != c.asked {
					t.Errorf("it asked %q", got)
				}
			}
		})
	}
}
