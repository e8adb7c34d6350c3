package importsource

import "testing"

func TestMirrors(t *testing.T) {
	m, err := ParseMirrors("quay.io=cache.local/quay, quay.io/containerdisks=registry.local:5000/disks/\n docker.io=hub.local")
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{
		"quay.io/containerdisks/debian:13":         "registry.local:5000/disks/debian:13",
		"quay.io/containerdisks/debian@sha256:00":  "registry.local:5000/disks/debian@sha256:00",
		"quay.io/containerdisksother/debian":       "cache.local/quay/containerdisksother/debian",
		"quay.io/fedora/fedora:42":                 "cache.local/quay/fedora/fedora:42",
		"quay.io.evil.example/containerdisks/a":    "quay.io.evil.example/containerdisks/a",
		"debian":                                   "hub.local/library/debian",
		"debian:13":                                "hub.local/library/debian:13",
		"somebody/disk":                            "hub.local/somebody/disk",
		"registry.example.com/quay.io/disk:latest": "registry.example.com/quay.io/disk:latest",
		"localhost/disk":                           "localhost/disk",
	} {
		if got := m.Image(image); got != want {
			t.Errorf("%s is read from %s, want %s", image, got, want)
		}
		if got := m.URL("docker://" + image); got != "docker://"+want {
			t.Errorf("%s is read from %s, want %s", image, got, want)
		}
	}
	for _, url := range []string{"https://quay.io/containerdisks/debian", "oci-archive:disk.tar"} {
		if got := m.URL(url); got != url {
			t.Errorf("%s is read from %s", url, got)
		}
	}
	if got := Mirrors(nil).Image("debian"); got != "debian" {
		t.Errorf("without a mirror it is read from %s", got)
	}
}

func TestBadMirrors(t *testing.T) {
	for _, text := range []string{"quay.io", "=registry.local:5000", "quay.io=", "quay=registry.local", "docker://quay.io=registry.local",
		"quay.io/debian:13=registry.local/debian", "quay.io=a.local quay.io=b.local", "quay.io=https://registry.local"} {
		if m, err := ParseMirrors(text); err == nil {
			t.Errorf("%q is taken for %v", text, m)
		}
	}
}
