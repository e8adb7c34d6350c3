// Package cli is kubebox's command line: it parses arguments, finds the checkout, and calls package cluster.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/hack/kubebox/internal/cluster"
)

// New is kubebox's command line, printing to out.
func New(out io.Writer) *cobra.Command {
	var stateDir string
	root := &cobra.Command{
		Use:   "kubebox",
		Short: "A real Kubernetes with three nodes on one machine",
		Long: "A real Kubernetes with three nodes on one machine.\n\nIt also holds " + strings.Join(programs(), ", ") +
			":\ncall it by one of these names, or give one as the first argument.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          unknownCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(out)
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().StringVar(&stateDir, "state", os.Getenv("KUBEBOX_STATE"), "state directory (default: .kubebox in the checkout)")
	box := func() (*cluster.Box, error) { return open(stateDir, out) }
	root.AddCommand(upCommand(box), downCommand(box), statusCommand(box), loadCommand(box), trustCommand(box), nodeCommand(box), killCommand(box), kubeconfigCommand(box), logsCommand(box))
	return root
}

func unknownCommand(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("there is no command %q: `kubebox --help` lists them", args[0])
	}
	return nil
}

// takes accepts between least and most arguments (any number if most is 0), and otherwise says how to call the command.
func takes(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || most > 0 && len(args) > most {
			return fmt.Errorf("call it as `%s`, not with %d arguments", c.UseLine(), len(args))
		}
		return nil
	}
}

func programs() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"}
}

type opener func() (*cluster.Box, error)

// open finds the checkout this program belongs to, and the state directory in it.
func open(stateDir string, out io.Writer) (*cluster.Box, error) {
	checkout, err := findCheckout()
	if err != nil {
		return nil, err
	}
	if stateDir == "" {
		stateDir = filepath.Join(checkout, ".kubebox")
	}
	if stateDir, err = filepath.Abs(stateDir); err != nil {
		return nil, fmt.Errorf("find state directory: %w", err)
	}
	// A cluster is known by its directory: by what a link leads to, not by the link. One that is yet to be made is none.
	if found, err := filepath.EvalSymlinks(stateDir); err == nil {
		stateDir = found
	}
	return cluster.New(stateDir, filepath.Join(checkout, "hack", "kubebox"), out), nil
}

// findCheckout looks above the program itself (which make puts into bin/) and above the working directory.
func findCheckout() (string, error) {
	var starts []string
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	for _, dir := range starts {
		for ; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "hack", "kubebox", "go.mod")); err == nil {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", errors.New("there is no checkout here: run kubebox from inside the repository")
}

func upCommand(box opener) *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Start the cluster, or what of it does not run", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := box()
			if err != nil {
				return err
			}
			return b.Up(c.Context())
		},
	}
}

func downCommand(box opener) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End the cluster and remove all of it", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := box()
			if err != nil {
				return err
			}
			return b.Down(c.Context())
		},
	}
}

func statusCommand(box opener) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "status", Short: "Tell what runs", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("there is no output format %q: use json, or none for text", output)
			}
			b, err := box()
			if err != nil {
				return err
			}
			s, err := b.Status(c.Context())
			if err != nil {
				return err
			}
			if output == "json" {
				return s.JSON(c.OutOrStdout())
			}
			s.Print(c.OutOrStdout())
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json")
	return c
}

func loadCommand(box opener) *cobra.Command {
	return &cobra.Command{
		Use: "load ARCHIVE...", Short: "Put the images of OCI archives onto every node", Args: takes(1, 0),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := box()
			if err != nil {
				return err
			}
			return b.Load(c.Context(), args)
		},
	}
}

func trustCommand(box opener) *cobra.Command {
	return &cobra.Command{
		Use: "trust REGISTRY AUTHORITY", Short: "Have the nodes pull from a registry itself, by the certificates in a file", Args: takes(2, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := box()
			if err != nil {
				return err
			}
			return b.Trust(args[0], args[1])
		},
	}
}

func nodeCommand(box opener) *cobra.Command {
	group := &cobra.Command{
		Use: "node", Short: "Stop, start, cut off or add a node",
		RunE: func(_ *cobra.Command, args []string) error {
			return fmt.Errorf("say what to do with which node: `kubebox node stop|start|cut|join NAME`, not %q", strings.Join(args, " "))
		},
	}
	for _, v := range []struct {
		verb, short string
		do          func(*cluster.Box, context.Context, string) error
	}{
		{"stop", "End a node as a power cut would", (*cluster.Box).StopNode},
		{"start", "Start a stopped node, or heal one that was cut off", (*cluster.Box).StartNode},
		{"cut", "Unplug a node from the network; it goes on running", (*cluster.Box).CutNode},
		{"join", "Add a new node", (*cluster.Box).JoinNode},
	} {
		group.AddCommand(&cobra.Command{
			Use: v.verb + " NAME", Short: v.short, Args: takes(1, 1),
			RunE: func(c *cobra.Command, args []string) error {
				b, err := box()
				if err != nil {
					return err
				}
				return v.do(b, c.Context(), args[0])
			},
		})
	}
	return group
}

func killCommand(box opener) *cobra.Command {
	return &cobra.Command{
		Use: "kill MACHINE/COMPONENT", Short: "Kill a component as a crash would; it is started again", Args: takes(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := box()
			if err != nil {
				return err
			}
			return b.KillComponent(c.Context(), args[0])
		},
	}
}

func kubeconfigCommand(box opener) *cobra.Command {
	return &cobra.Command{
		Use: "kubeconfig", Short: "Print the path of the cluster's kubeconfig", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := box()
			if err != nil {
				return err
			}
			if _, err := os.Stat(b.Layout.Kubeconfig()); err != nil {
				return errors.New("there is no cluster: run `kubebox up`")
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), b.Layout.Kubeconfig())
			return err
		},
	}
}

func logsCommand(box opener) *cobra.Command {
	lines := 50
	c := &cobra.Command{
		Use: "logs [COMPONENT | MACHINE/COMPONENT]", Short: "Print the end of a component's logs, or list the logs", Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := box()
			if err != nil {
				return err
			}
			return b.Logs(strings.Join(args, ""), lines)
		},
	}
	c.Flags().IntVarP(&lines, "lines", "n", lines, "how many lines of each log")
	return c
}
