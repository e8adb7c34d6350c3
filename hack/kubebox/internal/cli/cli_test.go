package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := New(&out)
	c.SetErr(&out)
	c.SetArgs(append([]string{"--state", t.TempDir()}, args...))
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestBadInputGetsOneLineThatSaysWhatToDo(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(archive, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want string }{
		{"frobnicate", "`kubebox --help` lists them"},
		{"node", "stop|start|cut|join NAME"},
		{"node explode node1", "stop|start|cut|join NAME"},
		{"node stop", "`kubebox node stop NAME"},
		{"node stop a b", "`kubebox node stop NAME"},
		{"kill", "`kubebox kill MACHINE/COMPONENT"},
		{"kill kubelet", "`kubebox kill MACHINE/COMPONENT"},
		{"load", "`kubebox load ARCHIVE..."},
		{"load " + archive, "run `kubebox up`"},
		{"trust registry:5000", "`kubebox trust REGISTRY AUTHORITY"},
		{"trust registry:5000 " + archive, "run `kubebox up`"},
		{"up --with chocolate", "unknown flag"},
		{"status -o xml", "use json"},
		{"kubeconfig", "run `kubebox up`"},
		{"logs kubelet", "`kubebox logs` lists them"},
		{"status --nonsense", "unknown flag"},
	} {
		out, err := run(t, strings.Fields(test.args)...)
		if err == nil {
			t.Errorf("kubebox %s: no error", test.args)
			continue
		}
		if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || out != "" {
			t.Errorf("kubebox %s: got %q and output %q, want one line with %q", test.args, err, out, test.want)
		}
	}
}

func TestStatusOfNoCluster(t *testing.T) {
	out, err := run(t, "status")
	if err != nil || out != "cluster:    None\n" {
		t.Errorf("got %q, %v", out, err)
	}
	out, err = run(t, "status", "-o", "json")
	if err != nil || !strings.Contains(out, `"state": "None"`) || !strings.Contains(out, `"hostIP": "10.77.0.254"`) {
		t.Errorf("as JSON: got %q, %v", out, err)
	}
}

// A cluster whose directory is given by way of a link is the one that is in it.
func TestStateDirectoryByLink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	box, err := open(link, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if box.Layout.Dir != dir {
		t.Errorf("the directory is %s, not %s", box.Layout.Dir, dir)
	}
}
