package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-vm/berth/internal/virtctl/ssh"
)

// sshFlags returns those of ssh and scp.
func (a *app) sshFlags(s *pflag.FlagSet) *ssh.Options {
	o := &ssh.Options{}
	s.StringVarP(&o.User, "username", "l", "", "user to be in the guest; ssh's own choice if it is empty")
	s.StringVarP(&o.Identity, "identity-file", "i", "", "file with the private key; what ssh finds itself if it is empty")
	s.StringVar(&o.KnownHosts, "known-hosts", knownHosts(), "file that the keys of guests are kept in")
	s.Lookup("known-hosts").DefValue = "~/.ssh/kubevirt_known_hosts" // the help is the same for everybody
	s.IntVarP(&o.Port, "port", "p", 22, "port of the guest")
	s.StringArrayVarP(&o.More, "local-ssh-opts", "t", nil, `more options for the program, for example "-o StrictHostKeyChecking=no"`)
	s.Bool("local-ssh", true, "use the local program, which is the only way")
	_ = s.MarkHidden("local-ssh")
	return o
}

func knownHosts() string {
	home, err := os.UserHomeDir()
	if err != nil || home == "" {
		return ""
	}
	return filepath.Join(home, ".ssh", "kubevirt_known_hosts")
}

func (a *app) ssh() *cobra.Command {
	var command string
	cmd := &cobra.Command{
		Use: "ssh [USER@]TYPE/NAME[/NAMESPACE]", Short: "Open an SSH session to a virtual machine",
		Long: "Open an SSH session to a virtual machine with the ssh of this machine, through the API server: no port of the guest has\n" +
			"to be reachable. TYPE is vm or vmi.",
		Example: a.examples(`
  # Log in to machine web as user debian
  virtctl ssh debian@vm/web

  # Run a command there, with a key of its own
  virtctl ssh debian@vm/web -i ~/.ssh/web -c 'systemctl status'`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.targets(""),
	}
	o := a.sshFlags(cmd.Flags())
	cmd.Flags().StringVarP(&command, "command", "c", "", "command to run instead of a session")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := ssh.ParseTarget(args[0])
		if err != nil {
			return misused(cmd, err)
		}
		if t.Namespace == "" {
			if t.Namespace, _, err = a.config.Namespace(); err != nil {
				return err
			}
		}
		if o.Virtctl, err = again(cmd); err != nil {
			return err
		}
		return a.program(cmd.Context(), ssh.Session(t, *o, command))
	}
	return cmd
}

func (a *app) scp() *cobra.Command {
	var c ssh.Copy
	cmd := &cobra.Command{
		Use: "scp SOURCE TARGET", Short: "Copy files to or from a virtual machine",
		Long: "Copy files to or from a virtual machine with the scp of this machine, through the API server. The one that is in the machine\n" +
			"is written [USER@]TYPE/NAME[/NAMESPACE]:PATH, where TYPE is vm or vmi.",
		Example: a.examples(`
  # Copy a file to the home of user debian in machine web
  virtctl scp notes.txt debian@vm/web:notes.txt

  # Copy a directory from there
  virtctl scp --recursive debian@vm/web:/var/log logs`),
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.targets(":"),
	}
	o := a.sshFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&c.Recursive, "recursive", "r", false, "copy directories with all that is in them")
	cmd.Flags().BoolVar(&c.Preserve, "preserve", false, "keep the times and modes of files")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.From, c.To = args[0], args[1]
		if _, _, _, err := c.Target(); err != nil {
			return misused(cmd, err)
		}
		namespace, _, err := a.config.Namespace()
		if err != nil {
			return err
		}
		if o.Virtctl, err = again(cmd); err != nil {
			return err
		}
		line, err := ssh.Transfer(c, namespace, *o)
		if err != nil {
			return err
		}
		return a.program(cmd.Context(), line)
	}
	return cmd
}

// again returns how this program is run again for the same cluster: with the flags that chose it.
func again(cmd *cobra.Command) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find virtctl itself: %w", err)
	}
	words := []string{self}
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "namespace" { // the target names it
			words = append(words, "--"+f.Name+"="+f.Value.String())
		}
	})
	return words, nil
}

// exit is the error of a program that has ended and has printed its own error; its exit code is passed on.
type exit struct{ code int }

func (e *exit) Error() string { return fmt.Sprintf("it ended with code %d", e.code) }

// program runs one of the user's own, with this one's input and output.
func (a *app) program(ctx context.Context, line []string) error {
	path, err := exec.LookPath(line[0])
	if err != nil {
		return fmt.Errorf("%s is not installed on this machine: %w", line[0], err)
	}
	cmd := exec.CommandContext(ctx, path, line[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, a.out, a.err
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // a terminal has told it already
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return &exit{ended.ExitCode()}
	}
	return err
}
