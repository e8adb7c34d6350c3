package registry

import (
	"archive/tar"
	"bytes"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
)

// FuzzScan looks for a disk in two layers of anything.
func FuzzScan(f *testing.F) {
	disk := entry{name: "disk/a", body: []byte("disk")}
	for _, upper := range [][]byte{
		layer(f, disk), layer(f, entry{name: "disk/.wh.a"}), layer(f, entry{name: "./disk/" + opaque}), layer(f, entry{name: ".wh.disk"}),
		layer(f, entry{name: "disk/a", kind: tar.TypeSymlink}), layer(f, entry{name: "disk/../disk/b"}, disk),
		layer(f, entry{name: "disk", kind: tar.TypeDir}, entry{name: "../disk/x"}), layer(f, entry{name: strings.Repeat("disk/", 60) + "a"}), nil,
	} {
		f.Add(upper, layer(f, disk))
	}
	f.Fuzz(func(t *testing.T, upper, lower []byte) {
		above := &cover{}
		for _, l := range [][]byte{upper, lower} {
			m, err := scan(bytes.NewReader(l), above)
			if err != nil {
				return
			}
			if m == nil {
				continue
			}
			if m.Offset < block || m.Offset%block != 0 || m.Offset > int64(len(l)) || m.Size < 0 {
				t.Fatalf("the disk is %d bytes at %d of %d", m.Size, m.Offset, len(l))
			}
			if name := m.Name; path.Clean(name) != name || !strings.HasPrefix(name, "/disk/") {
				t.Fatalf("the disk is at %q", name)
			}
			if above.hides(strings.TrimPrefix(m.Name, "/")) {
				t.Fatalf("%q is hidden", m.Name)
			}
			if m.Size <= int64(len(l))-m.Offset {
				_ = m.Rest(io.NewSectionReader(bytes.NewReader(l), m.Offset+m.Size, int64(len(l)))) // any error, no panic
			}
			return
		}
	})
}

// FuzzParse reads URLs.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"docker://quay.io/a/b:v1", "docker://a", "docker://h:5000/x@sha256:" + strings.Repeat("a", 64),
		"oci-archive:///a/b.tar", "oci-archive://a", "docker://", "http://x", "docker:///x", "docker://user:pw@h/x"} {
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, raw string, plain bool) {
		p, err := parse(raw, plain)
		if err != nil {
			sourcetest.Fails(t, err, task.BadTask)
			return
		}
		if (p.ref == nil) == (p.path == "") {
			t.Fatalf("%q became %+v", raw, p)
		}
		if again, err := parse(p.String(), plain); err != nil || again.String() != p.String() {
			t.Errorf("%q became %q, which became %q (%v)", raw, p, again, err)
		}
	})
}

// FuzzDockerLogin reads Docker's configuration file.
func FuzzDockerLogin(f *testing.F) {
	f.Add([]byte(`{"auths":{"h":{"auth":"dTpw"}}}`), "h/x")
	f.Add([]byte(`{"auths":{"https://index.docker.io/v1/":{"username":"u","password":"p"}}}`), "x")
	f.Add([]byte(`{"auths":{"%":{"auth":"%"}}}`), "h/x/y:1")
	f.Fuzz(func(_ *testing.T, text []byte, image string) {
		p, err := parse("docker://"+image, false)
		if err != nil {
			return
		}
		if auth, err := dockerLogin(text, p.ref.Context()); err == nil {
			_, _ = auth.Authorization() // any answer, no panic
		}
	})
}

// FuzzLabels makes labels of any environment.
func FuzzLabels(f *testing.F) {
	f.Add("INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=fedora")
	f.Add("KUBEVIRT_IO_KUBEVIRT_IO_X=")
	f.Fuzz(func(t *testing.T, env string) {
		for k, v := range labels([]string{env}) {
			prefix, name, ok := strings.Cut(k, "/")
			if !ok || !strings.HasSuffix(prefix, "kubevirt.io") || len(name) > 63 || len(v) > 63 || len(prefix) > 253 {
				t.Errorf("%q became %s=%s", env, k, v)
			}
		}
	})
}
