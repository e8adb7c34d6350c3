package plan

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (run with -update if that is meant):\n%s", name, diff)
	}
}

func TestMachinesAndFilesAreAsRecorded(t *testing.T) {
	node := Node{Name: "node2", Index: 2}
	for name, machine := range map[string]Machine{"control.json": Control(), "node.json": NodeMachine(node)} {
		data, err := json.MarshalIndent(machine, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, string(data)+"\n")
	}
	files, err := NodeFiles(node, Capacity{MemoryBytes: 24 << 30})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range files {
		golden(t, strings.ReplaceAll(path, "/", "_"), content)
	}
	golden(t, "Corefile", Corefile())
}

func TestTrust(t *testing.T) {
	const authority = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	files, err := TrustFiles("10.77.0.254:5000", authority)
	want := map[string]string{
		"etc/certs.d/10.77.0.254:5000/ca.crt": authority,
		"etc/certs.d/10.77.0.254:5000/hosts.toml": `server = "https://10.77.0.254:5000"

[host."https://10.77.0.254:5000"]
  capabilities = ["pull", "resolve"]
  ca = "ca.crt"
`,
	}
	if diff := cmp.Diff(want, files); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, bad := range []string{"", "..", "../..", "https://registry", "registry/path", "registry:", "a:b", "_default"} {
		if files, err := TrustFiles(bad, authority); err == nil {
			t.Errorf("registry %q gives %v", bad, files)
		}
	}
	if files, err := TrustFiles("registry", "no certificate"); err == nil {
		t.Errorf("what is no certificate gives %v", files)
	}
}

func TestNewNodeTakesLowestFreeIndex(t *testing.T) {
	existing := []Node{{"node1", 1}, {"node3", 3}}
	got, err := NewNode("extra", existing)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Node{"extra", 2}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got.IP() != "10.77.0.12" || got.PodCIDR() != "10.88.2.0/24" {
		t.Errorf("node of index 2 has addresses %s and %s", got.IP(), got.PodCIDR())
	}
}

func TestNewNodeRefuses(t *testing.T) {
	var full []Node
	for i := 1; i <= maxNodes; i++ {
		full = append(full, Node{Name: "n", Index: i})
	}
	for _, test := range []struct {
		name     string
		existing []Node
		want     string
	}{
		{"node1", []Node{{"node1", 1}}, "already exists"},
		{"Node", nil, "cannot name a node"},
		{"../etc", nil, "cannot name a node"},
		{"", nil, "cannot name a node"},
		{ControlName, nil, "cannot name a node"},
		{"one-more", full, "already has 99 nodes"},
	} {
		_, err := NewNode(test.name, test.existing)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("NewNode(%q): got %v, want an error with %q", test.name, err, test.want)
		}
	}
}

func TestNodeAddressesStayClearOfTheHost(t *testing.T) {
	if last := (Node{Index: maxNodes}).IP(); last == HostIP {
		t.Errorf("the last node would have the host's address %s", last)
	}
}

func TestReservedMemoryLeavesWhatANodeOffers(t *testing.T) {
	for _, test := range []struct{ have, offered int64 }{{24 << 30, 6 << 30}, {64 << 30, 6 << 30}, {8 << 30, 2 << 30}} {
		if got := test.have - (Capacity{MemoryBytes: test.have}).reserved(); got != test.offered {
			t.Errorf("of %d bytes a node offers %d, want %d", test.have, got, test.offered)
		}
	}
}
