package move

import (
	"errors"
	"strings"
	"testing"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestTheTargetHasTheSameDisks: a guest is not sent to a target that was made before a disk was added, or given back.
func TestTheTargetHasTheSameDisks(t *testing.T) {
	m := launcherapi.Machine{}
	m.Spec.Volumes = []kubevirt.Volume{{Name: "root"}}
	has := map[string]string{"ua-root": "vda", "ua-more": "vdb"}
	for name, row := range map[string]struct {
		volumes []string
		differ  string
	}{
		"the same":                {[]string{"more", "root"}, ""},
		"added since":             {[]string{"root"}, "(more)"},
		"given back since":        {[]string{"root", "more", "third"}, "(third)"},
		"both":                    {[]string{"root", "third"}, "(more, third)"},
		"nobody said, and it has": {nil, "(more)"},
	} {
		err := sameDisks(has, m, launcherapi.Move{Volumes: row.volumes})
		if (err == nil) != (row.differ == "") || err != nil && !strings.Contains(err.Error(), row.differ) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAddedDisksElsewhere: what was handed over is in the target's own pod, and everything else stays as it is.
func TestAddedDisksElsewhere(t *testing.T) {
	const here = `<domain type='qemu'><devices><disk type='file'><source file='/run/berth/volumes/root/disk.img'/><target dev='vda'/><alias name='ua-root'/></disk>` +
		`<disk type='file'><source file='/dev/fdset/65537'/><target dev='vdb'/><alias name='ua-files'/></disk>` +
		`<disk type='block'><source dev='/dev/fdset/655370'/><target dev='vdc'/><alias name='ua-device'/></disk></devices></domain>`
	var d libvirtxml.Domain
	if err := d.Unmarshal(here); err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("'/dev/fdset/65537'", "'/run/berth/volumes/files/disk.img'", "'/dev/fdset/655370'", "'/dev/berth/device'").Replace(here)
	if got := elsewhere(here, &d); got != want {
		t.Errorf("it is\n%s\nand not\n%s", got, want)
	}
}

// TestPlainly: what libvirt says of a disk is said of its volume, and the rest as it is.
func TestPlainly(t *testing.T) {
	s := &sending{volumes: map[string]string{"vdc": "local"}}
	for said, want := range map[string]string{
		"operation failed: migration of disk vdc failed: No space left on device": "disk local cannot be written at the target, which has no room for it: " +
			"free space there, or let the guest go to another node",
		"operation failed: migration of disk vdc failed: Input/output error": "disk local cannot be sent: Input/output error",
		"operation failed: migration of disk vdc failed":                     "disk local cannot be sent",
		"operation failed: migration of disk vdz failed: Input/output error": "operation failed: migration of disk vdz failed: Input/output error",
		"internal error: client socket is closed":                            "the target is gone, or cannot be reached any more: internal error: client socket is closed",
		"operation failed: job 'migration out' failed":                       "operation failed: job 'migration out' failed",
	} {
		if got := s.plainly(errors.New(said)).Error(); got != want {
			t.Errorf("%s: %s", said, got)
		}
	}
	if s.plainly(nil) != nil {
		t.Error("nothing is no error")
	}
}

// TestOutcome: libvirt that has ended without an answer says nothing about where the guest is, so the guest is not said to stay.
func TestOutcome(t *testing.T) {
	s, failed := &sending{}, errors.New("operation failed: job 'migration out' failed")
	for name, c := range map[string]struct{ answer, why, want error }{
		"sent":                                {nil, nil, nil},
		"sent, and aborted too late":          {nil, errAsked, nil},
		"failed":                              {failed, nil, failed},
		"aborted":                             {failed, errAsked, errAsked},
		"libvirt has ended":                   {libvirt.ErrInterrupted, nil, nil},
		"libvirt has ended, while it aborted": {libvirt.ErrInterrupted, errTooSlow, nil},
	} {
		if got := s.outcome(c.answer, c.why); !errors.Is(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
