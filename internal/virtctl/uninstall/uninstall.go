// Package uninstall removes Berth from a cluster, in the reverse order of its installation. It finds the installed objects by a
// label, deletes those that the manifests have, and does not know the installed programs.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Installed is the label of every object that an installation of Berth consists of.
const Installed = "berth.dev/installed"

// Options are the flags and arguments of the command.
type Options struct {
	KeepData bool
	DryRun   bool
	Timeout  time.Duration
}

// Run removes Berth. It changes nothing before all checks have passed.
func Run(ctx context.Context, c *kube.Client, o Options, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	found, err := find(ctx, c)
	if err != nil {
		return err
	}
	all, strays := sort(found)
	for _, o := range strays {
		_, _ = fmt.Fprintf(out, "Stays: %s has the label %s, and is no part of this version of Berth\n", o.title(), Installed)
	}
	if len(all) == 0 {
		return errors.New("nothing on this cluster has the label " + Installed + ": Berth is not installed on it")
	}
	u := &uninstallation{client: c, options: o, all: all, out: out}
	if err := u.readDefinitions(); err != nil {
		return err
	}
	made, err := u.made(ctx)
	if err != nil {
		return err
	}
	if len(made) > 0 && !o.KeepData {
		return &inUse{made}
	}
	if err := u.mayDelete(ctx); err != nil {
		return err
	}
	if len(made) > 0 {
		_, _ = fmt.Fprintln(out, "Stays as it is, with the definitions of its kinds:", strings.Join(made, ", "))
	}
	return u.steps(ctx)
}

// uninstallation is one on its way.
type uninstallation struct {
	client      *kube.Client
	options     Options
	all         []object
	definitions []definition
	out         io.Writer
}

// inUse lists the users' objects that would be lost.
type inUse struct{ made []string }

func (e *inUse) Error() string {
	return "Berth is in use: there are " + strings.Join(e.made, ", ") + "; they would go with the definitions of their kinds, and claims with them"
}

// Advice returns what to do about it.
func (*inUse) Advice() string {
	return "Delete them first, or say --with-data=keep: Berth goes, and all that was made with it stays, claims and running guests too."
}

// steps does it. Each step may have been done by an earlier try.
func (u *uninstallation) steps(ctx context.Context) error {
	for _, s := range []struct {
		title string
		of    func(object) bool
	}{
		{"what the API server asks Berth", func(o object) bool { return o.isOneOf(asked) }},
		{"the programs", func(o object) bool { return o.isOneOf(programs) }},
	} {
		if err := u.delete(ctx, s.title, s.of); err != nil {
			return err
		}
	}
	// No controller is left that would remove them when an object is deleted, or set them again.
	if err := u.dropFinalizers(ctx); err != nil {
		return err
	}
	last := slices.Concat(asked, programs, []string{definitionKind, "Namespace"})
	if err := u.delete(ctx, "accounts, rights and services", func(o object) bool { return !o.isOneOf(last) }); err != nil {
		return err
	}
	if !u.options.KeepData {
		if err := u.delete(ctx, "the definitions of kinds", func(o object) bool { return o.isOneOf([]string{definitionKind}) }); err != nil {
			return err
		}
	}
	if err := u.delete(ctx, "namespaces", func(o object) bool { return o.isOneOf([]string{"Namespace"}) }); err != nil {
		return err
	}
	if u.options.DryRun {
		_, err := fmt.Fprintln(u.out, "Nothing was changed.")
		return err
	}
	_, err := fmt.Fprintln(u.out, "Berth is off this cluster.")
	return err
}

var (
	// asked are webhooks and API services whose calls fail without their server, so they are removed before the servers.
	asked    = []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService"}
	programs = []string{"Deployment", "DaemonSet"}
)
