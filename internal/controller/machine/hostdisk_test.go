package machine

import (
	"strings"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/state"
)

func TestHostDiskPaths(t *testing.T) {
	for list, bad := range map[string]bool{"": false, "/srv/disks": false, " /srv/disks , /data": false,
		"disks": true, "/": true, "/srv/../etc": true, "/srv/": true} {
		if _, err := diskstate.HostDirectories(list); (err != nil) != bad {
			t.Errorf("%q: %v", list, err)
		}
	}
	for file, allowed := range map[string]bool{
		"/srv/disks/a.img": true, "/data/b.img": true,
		"/etc/shadow": false, "/srv/disks": false, "/srv/disks/": false, "/srv/disks/sub/a.img": false, "/srv/disks/../../etc/shadow": false,
		"/srv/disks//a.img": false, "srv/disks/a.img": false, "": false, "/srv/disks2/a.img": false,
	} {
		o := observed.Options{HostDirectories: []string{"/srv/disks", "/data"}}
		v := kubevirt.Volume{Name: "v", VolumeSource: kubevirt.VolumeSource{HostDisk: &kubevirt.HostDisk{Path: file, Type: "Disk"}}}
		if d := diskstate.HostDisk(o.HostDirectories, v); (d == nil) != allowed {
			t.Errorf("%q: %+v", file, d)
		}
		if d := diskstate.HostDisk(nil, v); d == nil || !strings.Contains(d.Why, "switched off") {
			t.Errorf("%q without a setting: %+v", file, d)
		}
	}
}

// TestHostDiskOfAnInstance: an instance that a user made without a machine cannot avoid the check either, and has no pod.
func TestHostDiskOfAnInstance(t *testing.T) {
	for dirs, runs := range map[string]bool{"": false, "/srv/disks": true} {
		w := sharers(t, func(_ string, i *kubevirt.VirtualMachineInstance) {
			i.Spec.Volumes = append(i.Spec.Volumes, kubevirt.Volume{Name: "host", VolumeSource: kubevirt.VolumeSource{
				HostDisk: &kubevirt.HostDisk{Path: "/srv/disks/a.img", Type: "Disk"}}})
		})
		var err error
		w.r.Read.Options.HostDirectories, err = diskstate.HostDirectories(dirs)
		w.must(err)
		w.both([]string{"a"}, false)
		if got := len(w.going()) == 1; got != runs {
			t.Errorf("with %q: runs is %v", dirs, got)
		}
		i := w.named("a")
		if forbidden := i.Status.Reason == string(state.DiskForbidden); forbidden == runs {
			t.Errorf("with %q it says %s: %s", dirs, i.Status.Reason, i.Status.Conditions[0].Message)
		}
	}
}
