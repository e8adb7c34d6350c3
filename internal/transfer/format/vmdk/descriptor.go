package vmdk

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/berth-vm/berth/internal/task"
)

// maxDescriptor is far more than the 10 KiB VMware reserves for one.
const maxDescriptor = 256 << 10

// descriptorTitle is the first line of every descriptor inside a file.
const descriptorTitle = "# Disk DescriptorFile"

// descriptor has the fields of the text descriptor that matter here.
type descriptor struct {
	known      bool // it begins as one
	createType string
	parent     string // the parent's content ID
	hint       string // its name
	extents    []string
}

func parseDescriptor(p []byte) descriptor {
	if end := bytes.IndexByte(p, 0); end >= 0 {
		p = p[:end]
	}
	var d descriptor
	d.known = strings.EqualFold(strings.TrimSpace(string(p[:min(len(p), len(descriptorTitle))])), descriptorTitle)
	for line := range strings.Lines(string(p)) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(line, "="); ok {
			value = strings.Trim(strings.TrimSpace(value), `"`)
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "createtype":
				d.createType = value
			case "parentcid":
				d.parent = value
			case "parentfilenamehint":
				d.hint = value
			}
		}
		if access, _, _ := strings.Cut(line, " "); access == "RW" || access == "RDONLY" || access == "NOACCESS" {
			d.extents = append(d.extents, line)
		}
	}
	return d
}

// alone refuses a descriptor inside a sparse file that speaks of any file but that one. Its name may be another than the
// one in the descriptor, since files get renamed, so the name is not compared: it is never used.
func (d descriptor) alone() error {
	if d.parent != "" && !strings.EqualFold(d.parent, "ffffffff") {
		return task.Errorf(task.UnsafeImage, "image is invalid because it has invalid backing file %q: a vmdk with parent %q needs another file, "+
			"which an import never opens; make it whole with: qemu-img convert", clip(d.hint), clip(d.parent))
	}
	switch strings.ToLower(d.createType) {
	case "", "monolithicsparse", "streamoptimized":
	default:
		return task.Errorf(task.UnsafeImage, "Invalid format vmdk %q for image: its data is in other files, which an import never opens%s; "+
			"make it whole with: qemu-img convert -O vmdk -o subformat=streamOptimized", clip(d.createType), d.list())
	}
	if len(d.extents) > 1 {
		return task.Errorf(task.UnsafeImage, "Invalid format vmdk for image: it consists of %d files, and an import opens no other file%s",
			len(d.extents), d.list())
	}
	for _, line := range d.extents {
		if f := strings.Fields(line); len(f) < 3 || f[2] != "SPARSE" {
			return task.Errorf(task.UnsafeImage, "Invalid format vmdk for image: its data is in another file, which an import never opens%s", d.list())
		}
	}
	if !d.known {
		return task.Errorf(task.BadImage, "vmdk has no %q where its descriptor must be: the file is damaged", descriptorTitle)
	}
	return nil
}

// list quotes the first extents, for a message.
func (d descriptor) list() string {
	if len(d.extents) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%q)", clip(strings.Join(d.extents[:min(len(d.extents), 3)], "; ")))
}

// descriptorFile refuses a file that has only a descriptor.
func descriptorFile(p []byte) error {
	d := parseDescriptor(p[:min(len(p), maxDescriptor)])
	return task.Errorf(task.UnsafeImage, "Invalid format vmdk %q for image: this is a descriptor that names other files, which an import never "+
		"opens%s; import the data file itself (NAME-flat.vmdk is a raw disk), or make it whole with: qemu-img convert -O vmdk "+
		"-o subformat=streamOptimized", clip(d.createType), d.list())
}

// clip shortens what an image says for a message.
func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}
