//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// cloudInitDir is the directory at which the cloud-init volume is mounted, read-only.
const cloudInitDir = "/cloud-init"

// scriptHeader is the first line of user data that is meant for this guest; the lines after it are commands.
const scriptHeader = "#berth-guest"

// cloudInit is the content of the cloud-init volume, by file name as NoCloud spells it.
type cloudInit map[string][]byte

// cloudInitFiles maps the files of both layouts to the NoCloud names.
var cloudInitFiles = []struct{ name, noCloud, configDrive string }{
	{"meta-data", "meta-data", "openstack/latest/meta_data.json"},
	{"user-data", "user-data", "openstack/latest/user_data"},
	{"network-config", "network-config", "openstack/latest/network_data.json"},
	{"vendor-data", "vendor-data", "openstack/latest/vendor_data.json"},
}

// maxCloudInitFile is the largest file that is printed to the console; real user data is at most 16 KiB on most clouds.
const maxCloudInitFile = 64 << 10

// readCloudInit finds the volume by its label, as cloud-init does, and prints what is on it. No volume is not an error.
func (g *guest) readCloudInit() cloudInit {
	device, label, kind := findCloudInit()
	if device == "" {
		return nil
	}
	if err := os.MkdirAll(cloudInitDir, 0o755); err != nil {
		g.say("error: %v", err)
		return nil
	}
	if err := unix.Mount(device, cloudInitDir, kind, unix.MS_RDONLY, ""); err != nil {
		g.say("error: mount %s volume %s: %v", kind, device, err)
		return nil
	}
	g.say("cloud-init volume %s label=%s type=%s", device, label, kind)
	files := cloudInit{}
	for _, f := range cloudInitFiles {
		path := f.noCloud
		if strings.EqualFold(label, "config-2") {
			path = f.configDrive
		}
		text, err := readSmall(cloudInitDir+"/"+path, maxCloudInitFile)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			g.say("error: %s: %v", f.name, err)
			continue
		}
		files[f.name] = text
		for line := range bytes.Lines(text) {
			g.say("%s| %s", f.name, bytes.TrimRight(line, "\r\n"))
		}
	}
	return files
}

// script is the commands in the user data, if it is meant for this guest.
func (c cloudInit) script() []string {
	header, rest, _ := strings.Cut(string(c["user-data"]), "\n")
	if strings.TrimSpace(header) != scriptHeader {
		return nil
	}
	return strings.Split(rest, "\n")
}

func findCloudInit() (device, label, kind string) {
	entries, err := os.ReadDir(sysBlock)
	if err != nil {
		return "", "", ""
	}
	for _, e := range entries {
		device := "/dev/" + e.Name()
		label, kind := volumeLabel(device)
		if strings.EqualFold(label, "cidata") || strings.EqualFold(label, "config-2") {
			return device, label, kind
		}
	}
	return "", "", ""
}

// volumeLabel reads the label where ISO 9660 and the FATs keep it.
func volumeLabel(device string) (label, kind string) {
	f, err := os.Open(device)
	if err != nil {
		return "", ""
	}
	defer func() { _ = f.Close() }()
	return labelIn(f)
}

func labelIn(f interface {
	ReadAt(p []byte, off int64) (int, error)
}) (label, kind string) {
	descriptor := make([]byte, 72)
	if _, err := f.ReadAt(descriptor, 16*2048); err == nil && string(descriptor[1:6]) == "CD001" {
		return strings.Trim(string(descriptor[40:72]), " \x00"), "iso9660"
	}
	sector := make([]byte, 512)
	if _, err := f.ReadAt(sector, 0); err != nil {
		return "", ""
	}
	for _, at := range []struct{ kind, label int }{{54, 43}, {82, 71}} { // FAT12/16, FAT32
		if string(sector[at.kind:at.kind+3]) == "FAT" {
			return strings.TrimRight(string(sector[at.label:at.label+11]), " "), "vfat"
		}
	}
	return "", ""
}

func readSmall(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%d bytes, %d is the most this guest prints", info.Size(), most)
	}
	return os.ReadFile(path)
}

// commandLineScript is the commands in the kernel command line: berth.run="sha256 vdb; poweroff". The kernel keeps the quotes, around
// the value or around the whole.
func commandLineScript(cmdline string) string {
	const key = "berth.run="
	_, rest, ok := strings.Cut(" "+strings.ReplaceAll(cmdline, `"`+key, key+`"`), " "+key)
	if !ok {
		return ""
	}
	if quoted, ok := strings.CutPrefix(rest, `"`); ok {
		script, _, _ := strings.Cut(quoted, `"`)
		return script
	}
	script, _, _ := strings.Cut(rest, " ")
	return script
}
