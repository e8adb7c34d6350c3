package host

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// modules are the parts of the kernel a cluster needs, with the file that shows that one is there. On many kernels they are
// built in, and loading them by name then fails without harm.
var modules = []struct{ name, proof string }{
	{"overlay", ""}, {"veth", ""}, {"bridge", ""}, {"nf_tables", ""}, {"nf_conntrack", "/proc/sys/net/netfilter"},
	{"loop", "/dev/loop-control"}, {"fuse", "/dev/fuse"}, {"xfs", ""},
}

// LoadModules loads what the kernel has as modules, and says what it does not have at all.
func LoadModules() error {
	for _, m := range modules {
		loaded := exec.Command("modprobe", "-q", m.name).Run() == nil
		if _, err := os.Stat(m.proof); m.proof != "" && err != nil && !loaded {
			return fmt.Errorf("the kernel has no %s (%s is missing): load that module or use another kernel", m.name, m.proof)
		}
	}
	return nil
}

// limits are kernel settings that are the whole machine's; three kubelets and their pods watch more files than the defaults allow.
var limits = map[string]int{
	"/proc/sys/fs/inotify/max_user_instances": 8192,
	"/proc/sys/fs/inotify/max_user_watches":   524288,
}

// RaiseLimits raises those settings, and never lowers one.
func RaiseLimits() error {
	for file, want := range limits {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read limit: %w", err)
		}
		if have, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && have >= want {
			continue
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(want)), 0o644); err != nil {
			return fmt.Errorf("raise %s to %d: %w", file, want, err)
		}
	}
	return nil
}
