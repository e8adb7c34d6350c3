package disks

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/containerimage"
	"github.com/berth-vm/berth/internal/launcher/remote"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/machinefields"
)

// TestHostDisk: a disk of the node is used as it is; one that is not there is made only if that was asked for.
func TestHostDisk(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there.img")
	if err := os.WriteFile(there, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := hostDisk(there, &kubevirt.HostDisk{Type: "DiskOrCreate", Capacity: resource.MustParse("1Mi")}); err != nil || b.Path != there {
		t.Errorf("a disk that is there: %+v, %v", b, err)
	}
	if data, err := os.ReadFile(there); err != nil || string(data) != "data" {
		t.Errorf("it was changed: %q, %v", data, err)
	}
	missing := filepath.Join(dir, "missing.img")
	if _, err := hostDisk(missing, &kubevirt.HostDisk{Type: "Disk"}); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a disk that is not there: %v", err)
	}
	if _, err := hostDisk(missing, &kubevirt.HostDisk{Type: "DiskOrCreate", Capacity: resource.MustParse("1Mi")}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(missing); err != nil || info.Size() != 1<<20 {
		t.Errorf("the disk that was made: %v, %v", info, err)
	}
}

func refusedField(path string) bool {
	return slices.ContainsFunc(machinefields.Instance, func(f machinefields.Field) bool {
		return f.Path == path && f.Effect == machinefields.Refused
	})
}

// TestNoVolumeIsForgotten: every kind of volume that the API has is a disk that the launcher knows.
func TestNoVolumeIsForgotten(t *testing.T) {
	for _, kind := range reflect.VisibleFields(reflect.TypeFor[kubevirt.VolumeSource]()) {
		if kind.Anonymous {
			continue // its fields follow
		}
		v := kubevirt.Volume{Name: "\x00"} // no file can have that name, so nothing is made
		field := reflect.ValueOf(&v.VolumeSource).Elem().FieldByIndex(kind.Index)
		field.Set(reflect.New(field.Type().Elem()))
		if v.Container != nil {
			continue // it has become the disk that its container made
		}
		name, _, _ := strings.Cut(kind.Tag.Get("json"), ",")
		if refusedField("volumes[]." + name) {
			continue
		}
		if v.Networked() {
			if _, err := backing.NewRemote(launcherapi.Machine{}, v, ""); v.HTTP == nil && err != nil {
				t.Errorf("%s: %v", kind.Name, err)
			}
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // some wait for their disk, which does not come
		_, err := inPod(ctx, launcherapi.Machine{}, v)
		if v.ContainerImage != nil {
			_, err = (&containerimage.Maker{Log: slog.New(slog.DiscardHandler), Dial: (&remote.Disks{}).Dialer("http")}).Disk(ctx, v)
		}
		cancel()
		if err == nil || strings.Contains(err.Error(), "no source") {
			t.Errorf("%s: %v", kind.Name, err)
		}
	}
}

// TestContainerFormat: an image from a registry is not trusted, because QEMU would open whatever file it names.
func TestContainerFormat(t *testing.T) {
	qcow2 := func(change func([]byte)) []byte {
		head := make([]byte, 4<<16) // four clusters: header, reference counts, their table, the first table
		copy(head, "QFI\xfb\x00\x00\x00\x03")
		put := func(at int, width int, value uint64) {
			for i := range width {
				head[at+width-1-i] = byte(value >> (8 * i))
			}
		}
		put(20, 4, 16)    // bits of a cluster
		put(24, 8, 1<<20) // size of the disk
		put(36, 4, 1)     // entries of the first table
		put(40, 8, 3<<16) // where it is
		put(48, 8, 1<<16) // where the table of reference counts is
		put(56, 4, 1)     // its clusters
		put(96, 4, 4)     // bits of a reference count, as a power
		put(100, 4, 104)  // length of the header
		change(head)
		return head
	}
	for name, c := range map[string]struct {
		head         []byte
		want, refuse string
	}{
		"raw":           {head: []byte("boot"), want: "raw"},
		"empty":         {want: "raw"},
		"qcow2":         {head: qcow2(func([]byte) {}), want: "qcow2"},
		"backing file":  {head: qcow2(func(h []byte) { h[15] = 104; h[19] = 3 }), refuse: "backing file"},
		"external data": {head: qcow2(func(h []byte) { h[79] = 1 << 2 }), refuse: "data"},
		"cut short":     {head: qcow2(func([]byte) {})[:100], refuse: "truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "disk")
			if err := os.WriteFile(path, c.head, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := backing.DetectFormat(path)
			if got != c.want || (err == nil) != (c.refuse == "") || err != nil && !strings.Contains(err.Error(), c.refuse) {
				t.Errorf("it is %q, %v", got, err)
			}
		})
	}
}
