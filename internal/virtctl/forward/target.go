// Package forward makes ports of a guest reachable at ports of the user's machine, or at a program's standard input and output,
// through the API server. It moves bytes; what they are it does not know.
package forward

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Target is a machine, or an instance, as users name it: TYPE/NAME[/NAMESPACE].
type Target struct {
	Kind      string // vm or vmi
	Name      string
	Namespace string // empty: the one of the command line
}

// ParseTarget reads one. The texts are those clients know.
func ParseTarget(text string) (Target, error) {
	if text == "" {
		return Target{}, errors.New("target cannot be empty")
	}
	var t Target
	kind := ""
	switch parts := strings.Split(text, "/"); len(parts) {
	case 1:
		return t, errors.New("target must contain type and name separated by '/'")
	case 2:
		kind, t.Name = parts[0], parts[1]
	case 3:
		kind, t.Name, t.Namespace = parts[0], parts[1], parts[2]
		if t.Namespace == "" {
			return t, errors.New("namespace cannot be empty")
		}
	default:
		return t, errors.New("target is not valid with more than two '/'")
	}
	if t.Kind = Kind(kind); t.Kind == "" {
		return t, fmt.Errorf("unsupported resource type '%s'", kind)
	}
	if t.Name == "" {
		return t, errors.New("name cannot be empty")
	}
	for _, name := range []string{t.Name, t.Namespace} { // it becomes a part of a path, and of a line for a shell
		if wrong := validation.IsDNS1123Subdomain(name); name != "" && len(wrong) > 0 {
			return t, fmt.Errorf("%q is no name: %s", name, wrong[0])
		}
	}
	return t, nil
}

// Kind is vm or vmi, however a user spells it; empty: neither.
func Kind(text string) string {
	switch strings.ToLower(text) {
	case "vm", "vms", "virtualmachine", "virtualmachines":
		return "vm"
	case "vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances":
		return "vmi"
	}
	return ""
}

// resource returns the kind as the API has it.
func (t Target) resource() string {
	if t.Kind == "vmi" {
		return "virtualmachineinstances"
	}
	return "virtualmachines"
}

// Port is a port here and the guest's that it stands for.
type Port struct {
	Local, Remote int
	Protocol      string // tcp or udp
}

// ParsePort reads [PROTOCOL/]LOCAL[:REMOTE].
func ParsePort(text string) (Port, error) {
	p := Port{Protocol: "tcp"}
	rest := text
	if protocol, ports, found := strings.Cut(text, "/"); found {
		p.Protocol, rest = strings.ToLower(protocol), ports
	}
	if p.Protocol != "tcp" && p.Protocol != "udp" {
		return p, errors.New("unknown protocol: " + p.Protocol)
	}
	local, remote, two := strings.Cut(rest, ":")
	if local == "" {
		return p, errors.New("invalid port, missing local and/or remote port")
	}
	var err error
	if p.Local, err = number(local); err != nil {
		return p, err
	}
	p.Remote = p.Local
	if two {
		p.Remote, err = number(remote)
	}
	return p, err
}

func number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %q is not between 1 and 65535", text)
	}
	return int(n), nil
}
