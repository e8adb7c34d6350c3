package main

import (
	"slices"
	"strings"
	"testing"
)

func TestSelectTargets(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"all", "guest berth launcher csi makers"}, {"berth", "berth"}, {"launcher berth", "launcher berth"}, {"guest-generic", "guest-generic"},
		{"cdi", "cdi-operator cdi-controller cdi-apiserver cdi-uploadproxy cdi-uploadserver cdi-importer cdi-cloner"}, {"cdi-cloner", "cdi-cloner"},
	} {
		got, err := selectTargets(strings.Fields(c.args))
		if err != nil || !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("targets for %q = %v, %v; want %s", c.args, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "bert", "berth -o"} {
		if got, err := selectTargets(strings.Fields(bad)); err == nil || !strings.Contains(err.Error(), "say what to build") {
			t.Errorf("targets for %q = %v, %v; want to be told what there is", bad, got, err)
		}
	}
}

func TestMergedFolders(t *testing.T) {
	for name, want := range map[string]string{
		"bin/sh": "usr/bin/sh", "lib/x86_64-linux-gnu/libc.so.6": "usr/lib/x86_64-linux-gnu/libc.so.6", "lib64/ld.so": "usr/lib64/ld.so",
		"usr/bin/virsh": "usr/bin/virsh", "etc/lib/x": "etc/lib/x", "library/x": "library/x",
	} {
		if got := merged(name); got != want {
			t.Errorf("merged(%s) = %s, want %s", name, got, want)
		}
	}
}

func TestWanted(t *testing.T) {
	for name, want := range map[string]bool{
		"usr/share/doc/dash/copyright": true, "usr/share/doc/dash/changelog.gz": false, "usr/share/man/man1/sh.1.gz": false,
		"usr/share/manual": true, "usr/share/locale": false, "usr/bin/qemu-img": true, "var/log/libvirt": false,
	} {
		if got := wanted(name); got != want {
			t.Errorf("wanted(%s) = %t, want %t", name, got, want)
		}
	}
}
