package plug

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// oneDrive is QEMU's list of drives with one disk of 16 MiB.
func oneDrive(command string) string {
	if command != "query-block" {
		return ""
	}
	return `{"return": [{"qdev": "/machine/peripheral/ua-root/virtio-backend", "inserted": {"node-name": "format", "image": {"virtual-size": 16777216}}}]}`
}

func growsTo(t *testing.T, refuse string, b backing.Disk, began, told int64) (commands []string, again func(time.Duration)) {
	t.Helper()
	qemu, said := fakeQEMU(t, refuse, oneDrive)
	p := plugsTo(t, qemu, &fakeDomain{})
	p.growth = newGrowth(launcherapi.Machine{Sizes: map[string]int64{"root": began}}, map[string]backing.Disk{"root": b})
	now := time.Now()
	p.grow(map[string]int64{"root": told}, now)
	commands = said()
	return commands, func(d time.Duration) {
		p.grow(map[string]int64{"root": told}, now.Add(d))
		if n := len(said()); (n > len(commands)) != (d >= growEvery) {
			t.Errorf("after %s QEMU was asked %d times more", d, n-len(commands))
		}
	}
}

// TestGrow: QEMU is told about a disk that can be larger, and about no other.
func TestGrow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	plain := backing.Disk{Path: file, Format: "raw"}
	for name, c := range map[string]struct {
		b           backing.Disk
		began, told int64
		want        bool
	}{
		"grown while it runs":         {plain, 16 << 20, 32 << 20, true},
		"grown before a move":         {plain, 32 << 20, 0, true},
		"as it was":                   {plain, 16 << 20, 0, false},
		"smaller":                     {plain, 8 << 20, 0, false},
		"nothing said":                {plain, 0, 0, false},
		"a copy":                      {backing.Disk{Path: file, Format: "qcow2", Copied: true}, 0, 32 << 20, false},
		"only read":                   {backing.Disk{Path: file, Format: "raw", ReadOnly: true}, 0, 32 << 20, false},
		"a network disk behind claim": {backing.Disk{Remote: &backing.Remote{}, Format: "raw"}, 0, 32 << 20, true},
		"a file that is not there":    {backing.Disk{Path: file + ".no", Format: "raw"}, 0, 32 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			commands, _ := growsTo(t, "", c.b, c.began, c.told)
			told := strings.Contains(strings.Join(commands, "\n"), `block_resize {"node-name":"format","size":33554432}`)
			if told != c.want {
				t.Errorf("QEMU was told %q", commands)
			}
		})
	}
}

// TestGrowRefused: QEMU is not asked for the same all the time.
func TestGrowRefused(t *testing.T) {
	_, again := growsTo(t, "block_resize", backing.Disk{Remote: &backing.Remote{}, Format: "raw"}, 0, 32<<20)
	again(growEvery / 2)
}
