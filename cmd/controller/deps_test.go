package main

import (
	"testing"

	"github.com/berth-vm/berth/internal/testing/dependencies"
)

// TestDependencies: the controller never moves bytes itself and runs no guest.
func TestDependencies(t *testing.T) {
	dependencies.Refuse(t, dependencies.Berth+"transfer", dependencies.Berth+"launcher", "github.com/digitalocean/go-libvirt", "libvirt.org/go/libvirtxml")
}
