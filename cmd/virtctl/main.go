// Command virtctl is the tool of users: it uploads images, makes claims and machines, starts and stops them and shows
// what they wait for. Linked as kubectl-virt it is a kubectl plugin: `kubectl virt ...`.
//
// Each verb is one file: its flags and its help. What a verb does is in internal/virtctl.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-vm/berth/internal/version"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ctrl-c ends what the first one only asks to end
	code := run(ctx, os.Args, streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

type streams struct {
	in       io.Reader
	out, err io.Writer
}

// interrupted is the exit code of a program that ctrl-c ended, as shells have it.
const interrupted = 130

// run is main with arguments, streams and the exit code as parameters.
func run(ctx context.Context, args []string, s streams) int {
	root := newRoot(displayName(args[0]), s)
	root.SetArgs(args[1:])
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(s.err, "interrupted")
		return interrupted
	}
	var ended *exit
	if errors.As(err, &ended) {
		return ended.code
	}
	_, _ = fmt.Fprintln(s.err, err)
	var advice interface{ Advice() string }
	var away *net.OpError
	switch {
	case errors.As(err, &advice):
		if text := advice.Advice(); text != "" {
			_, _ = fmt.Fprintln(s.err, text)
		}
	case errors.As(err, &away) && away.Op == "dial":
		_, _ = fmt.Fprintln(s.err, "The cluster does not answer at that address. kubectl config view shows where it is looked for.")
	}
	return 1
}

// displayName returns what users type to get here: a kubectl plugin is a program called kubectl-NAME.
func displayName(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), ".exe")
	if plugin, ok := strings.CutPrefix(name, "kubectl-"); ok {
		return "kubectl " + strings.ReplaceAll(plugin, "_", "-")
	}
	return "virtctl"
}

// app has the streams and flags that every verb uses.
type app struct {
	streams
	name   string
	config clientcmd.ClientConfig
}

func newRoot(name string, s streams) *cobra.Command {
	a := &app{streams: s, name: name}
	root := &cobra.Command{
		Use:   "virtctl",
		Short: name + " controls virtual machines and their disks",
		Long: name + " controls virtual machines and their disks: it uploads images, makes claims and machines, starts and stops\n" +
			"them, and shows what they wait for.",
		Version:       version.Get().String(),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetFlagErrorFunc(misused)
	root.SetErr(s.err) // and not SetOut: it would send warnings about old flags into pipes
	a.bindConfig(root)
	root.AddCommand(
		a.imageUpload(), a.createPVC(), a.create(), a.start(), a.stop(), a.restart(), a.console(), a.addVolume(), a.removeVolume(),
		a.vm(), a.version(), a.pause(), a.unpause(), a.vnc(), a.portForward(), a.ssh(), a.scp(), a.expose(),
		a.guestOSInfo(), a.fsList(), a.userList(), a.volumes(), a.web(), a.migrate(), a.migrateCancel(), a.vmExport(), a.uninstall(), a.takeover(),
		a.softReboot(), a.reset(), a.evacuateCancel(), a.expand(), a.objectGraph(),
	)
	for verb, why := range refusals {
		root.AddCommand(refused(verb, why))
	}
	return root
}

// misuse is a command line that a verb does not take.
type misuse struct {
	error
	verb string
}

// Advice says how to see the verb's arguments.
func (m *misuse) Advice() string { return m.verb + " --help shows what it takes." }

func misused(cmd *cobra.Command, err error) error {
	return &misuse{error: err, verb: cmd.CommandPath()}
}

// group returns a command that only has subcommands. An unknown subcommand is an error, as it is for the root.
func group(cmd *cobra.Command, others ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(others...)
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
			text += "; did you mean " + strings.Join(like, " or ") + "?"
		}
		return misused(cmd, errors.New(text))
	}
	return cmd
}

// bindConfig defines the flags that choose the cluster, as kubectl spells them.
func (a *app) bindConfig(root *cobra.Command) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	overrides := &clientcmd.ConfigOverrides{}
	flags := root.PersistentFlags()
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig file to use")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	clientcmd.BindOverrideFlags(overrides, flags, names)
	a.config = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// client returns the cluster and namespace of the command line.
func (a *app) client() (*kube.Client, error) {
	config, err := a.config.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: name a kubeconfig file with --kubeconfig, or in the environment variable KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err) // it says which file and what is wrong with it
	}
	namespace, _, err := a.config.Namespace()
	if err != nil {
		return nil, err
	}
	return kube.New(config, namespace)
}

// examples are a verb's examples, as the user would have to type them here.
func (a *app) examples(text string) string {
	return strings.ReplaceAll(strings.Trim(text, "\n"), "virtctl ", a.name+" ")
}
