package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

func TestClusterIsReadBackAsWritten(t *testing.T) {
	dir := t.TempDir()
	want := NewCluster([]plan.Node{{Name: "node1", Index: 1}})
	want.Cut = []string{"node1"}
	if err := want.Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoadSaysWhatToDo(t *testing.T) {
	if _, err := Load(t.TempDir()); !errors.Is(err, ErrNone) {
		t.Errorf("from an empty directory: got %v, want %v", err, ErrNone)
	}
	for name, content := range map[string]string{"damaged": "{", "another version": `{"format": 999}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "run `kubebox down`") {
			t.Errorf("%s: got %v, want an error that says what to run", name, err)
		}
	}
}

func TestUnknownNodeIsAnsweredWithTheKnownOnes(t *testing.T) {
	c := NewCluster([]plan.Node{{Name: "node1", Index: 1}, {Name: "node2", Index: 2}})
	_, err := c.Node("node7")
	if err == nil || !strings.Contains(err.Error(), `"node7"; there are: node1 node2`) {
		t.Errorf("got %v", err)
	}
}

func TestOwner(t *testing.T) {
	Runtime = t.TempDir()
	check := func(want string) {
		t.Helper()
		got, err := Owner()
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	check("")
	for _, dir := range []string{"/a/.kubebox", "/b/.kubebox", "", ""} {
		if err := SetOwner(dir); err != nil {
			t.Fatal(err)
		}
		check(dir)
	}
}

func TestSecondCommandWaitsForTheFirst(t *testing.T) {
	Runtime = t.TempDir()
	first, err := Lock(func() { t.Error("the first command had to wait") })
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	got := make(chan error, 1)
	go func() {
		second, err := Lock(func() { close(waited) })
		if err == nil {
			err = second.Close()
		}
		got <- err
	}()
	<-waited
	select {
	case err := <-got:
		t.Fatalf("the second command went on while the first held the lock: %v", err)
	default:
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
