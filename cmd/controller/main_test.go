package main

import (
	"strings"
	"testing"
)

// TestSides: each side asks for its own image alone, so that either can run without the other.
func TestSides(t *testing.T) {
	for _, c := range []struct {
		o    options
		want string // in the error; empty: it can run
	}{
		{options{controllers: "data", image: "worker"}, ""},
		{options{controllers: "machine", launcher: "launcher"}, ""},
		{options{controllers: "all", image: "worker", launcher: "launcher"}, ""},
		{options{controllers: "data", launcher: "launcher"}, "--worker-image"},
		{options{controllers: "machine", image: "worker"}, "--launcher-image"},
		{options{controllers: "all", image: "worker"}, "--launcher-image"},
		{options{controllers: "machine", launcher: "launcher", hostDisks: "/srv/disks,/data"}, ""},
		{options{controllers: "machine", launcher: "launcher", hostDisks: "disks"}, "--host-disk-directories"},
		{options{controllers: "both", image: "worker", launcher: "launcher"}, `"both"`},
	} {
		err := c.o.check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}
