//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/imagevm"
)

// TestLookUp: users as images name them.
func TestLookUp(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/sh\r\nbroken\napp:x:1000:1001::/home/app:/bin/sh\n12:x:77:78::/named-like-a-number:/\n"
	const group = "root:x:0:\napp:x:1001:\ndisk:x:6:other,app\nstaff:x:50:app\n"
	for user, want := range map[string]account{
		"":           {home: "/root"},
		"0":          {home: "/root"},
		"app":        {uid: 1000, gid: 1001, groups: []uint32{6, 50}, home: "/home/app"},
		"1000":       {uid: 1000, gid: 1001, groups: []uint32{6, 50}, home: "/home/app"},
		"app:disk":   {uid: 1000, gid: 6, home: "/home/app"},
		"app:9":      {uid: 1000, gid: 9, home: "/home/app"},
		"4711":       {uid: 4711, home: "/"},
		"4711:staff": {uid: 4711, gid: 50, home: "/"},
		"12":         {uid: 77, gid: 78, home: "/named-like-a-number"},
	} {
		got, err := lookUp(user, passwd, group)
		if err != nil {
			t.Errorf("%q: %v", user, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(account{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", user, diff)
		}
	}
	for user, want := range map[string]string{"nobody": `no user "nobody"`, "app:none": `no group "none"`, "-1": `no user "-1"`, "4294967296": "no user"} {
		if _, err := lookUp(user, passwd, group); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", user, err, want)
		}
	}
	if got, err := lookUp("", "", ""); err != nil || got.uid != 0 || got.home != "/" {
		t.Errorf("an image without users: %+v, %v", got, err)
	}
}

func TestEnvironment(t *testing.T) {
	got := environment(imagevm.Orders{Env: []string{"PATH=/bin", "A=b"}, Host: "box"}, account{home: "/home"})
	if diff := cmp.Diff([]string{"PATH=/bin", "A=b", "HOME=/home", "HOSTNAME=box", "TERM=xterm"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := value([]string{"A=1", "AB=2", "A=3"}, "A"); got != "3" {
		t.Errorf("A is %q", got)
	}
}

func TestSignalOf(t *testing.T) {
	for name, want := range map[string]unix.Signal{"": unix.SIGTERM, "SIGQUIT": unix.SIGQUIT, "quit": unix.SIGQUIT, "3": unix.SIGQUIT, "0": unix.SIGTERM,
		"99": unix.SIGTERM, "nonsense": unix.SIGTERM} {
		if got := signalOf(name); got != want {
			t.Errorf("%q is %v, want %v", name, got, want)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"run": 0o755, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"run": dir + "/run", "./x": "./x", "/no/such": "/no/such"} {
		if got, err := find(name, "/nowhere:"+dir, "/"); err != nil || got != want {
			t.Errorf("%s is %s, %v", name, got, err)
		}
	}
	if got, err := find("run", ".", dir); err != nil || got != dir+"/run" {
		t.Errorf("run in the working directory is %s, %v", got, err)
	}
	if _, err := find("plain", dir, "/"); err == nil {
		t.Error("a file that nobody may run was found")
	}
}
