// Package ssh runs the user's own ssh and scp for a guest, with virtctl itself as the way there. Keys, agents, known hosts and
// configuration are those of the program; none of them passes through here.
package ssh

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-vm/berth/internal/virtctl/forward"
)

// Options are the flags of both verbs.
type Options struct {
	User       string
	Port       int
	Identity   string // empty: what the program finds
	KnownHosts string // empty: the program's own
	More       []string
	// Virtctl is the command that gets here again, with the flags that choose the cluster.
	Virtctl []string
}

// Target is a machine and who to be there: [USER@]TYPE/NAME[/NAMESPACE].
type Target struct {
	forward.Target
	User string
}

// ParseTarget reads one. The texts are those clients know.
func ParseTarget(text string) (Target, error) {
	var t Target
	if user, rest, found := strings.Cut(text, "@"); found {
		if user == "" {
			return t, errors.New("expected username before '@'")
		}
		t.User, text = user, rest
		if text == "" {
			return t, errors.New("expected target after '@'")
		}
	}
	var err error
	t.Target, err = forward.ParseTarget(text)
	return t, err
}

// Session returns the command line of ssh.
func Session(t Target, o Options, command string) []string {
	args := append(o.program("ssh", t), "--", o.host(t))
	if command != "" {
		args = append(args, command)
	}
	return args
}

// Copy describes a copy with scp.
type Copy struct {
	From, To            string // one of them is [USER@]TYPE/NAME[/NAMESPACE]:PATH
	Recursive, Preserve bool
}

// Target returns the machine of a copy, and whether it is where the copy goes.
func (c Copy) Target() (t Target, path string, there bool, err error) {
	from, to := strings.Contains(c.From, ":"), strings.Contains(c.To, ":")
	remote := c.From
	switch {
	case from && to:
		return t, "", false, fmt.Errorf("copying from a remote location to another remote location is not supported: %q to %q", c.From, c.To)
	case !from && !to:
		return t, "", false, fmt.Errorf("none of the two provided locations seems to be a remote location: %q to %q", c.From, c.To)
	case to:
		remote, there = c.To, true
	}
	machine, path, _ := strings.Cut(remote, ":")
	t, err = ParseTarget(machine)
	return t, path, there, err
}

// Transfer returns the command line of scp.
func Transfer(c Copy, namespace string, o Options) ([]string, error) {
	t, path, there, err := c.Target()
	if err != nil {
		return nil, err
	}
	if t.Namespace == "" {
		t.Namespace = namespace
	}
	args := o.program("scp", t)
	if c.Recursive {
		args = append(args, "-r")
	}
	if c.Preserve {
		args = append(args, "-p")
	}
	remote := o.host(t) + ":" + path
	if there {
		return append(args, "--", c.From, remote), nil
	}
	return append(args, "--", remote, c.To), nil
}

// host returns the machine's name for the program: known_hosts keeps its key under this name.
func (o Options) host(t Target) string {
	name := t.Kind + "." + t.Name + "." + t.Namespace
	user := o.User
	if t.User != "" {
		user = t.User
	}
	if user == "" {
		return name
	}
	return user + "@" + name
}

// program returns the command line of ssh or scp up to the destination. The program reads the proxy command as a shell line in
// which a % begins a token of its own.
func (o Options) program(name string, t Target) []string {
	way := append([]string(nil), o.Virtctl...)
	way = append(way, "port-forward", "--stdio=true", t.Kind+"/"+t.Name+"/"+t.Namespace, strconv.Itoa(o.Port))
	for i, word := range way {
		way[i] = strings.ReplaceAll("'"+strings.ReplaceAll(word, "'", `'\''`)+"'", "%", "%%")
	}
	args := []string{name, "-o", "ProxyCommand=" + strings.Join(way, " ")}
	if o.KnownHosts != "" {
		args = append(args, "-o", "UserKnownHostsFile="+o.KnownHosts)
	}
	for _, more := range o.More {
		args = append(args, strings.Fields(more)...)
	}
	if o.Identity != "" {
		args = append(args, "-i", o.Identity)
	}
	return args
}
