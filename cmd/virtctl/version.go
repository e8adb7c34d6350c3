package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/version"
	"github.com/berth-vm/berth/internal/virtctl/machine"
)

func (a *app) version() *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of this program and of the cluster's machine side",
		Example: a.examples(`
  virtctl version --client`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(a.out, "Client Version: %s\n", version.Get())
			if err != nil || clientOnly {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			text, err := c.Core.CoreV1().RESTClient().Get().AbsPath(machine.Group, "version").DoRaw(cmd.Context())
			if err != nil {
				return fmt.Errorf("ask the cluster for its version: %w", err)
			}
			var said struct {
				GitVersion string `json:"gitVersion"`
				GitCommit  string `json:"gitCommit"`
				BuildDate  string `json:"buildDate"`
			}
			if err := json.Unmarshal(text, &said); err != nil {
				return fmt.Errorf("read the cluster's version: %w", err)
			}
			from := ""
			if said.GitCommit != "" {
				from = fmt.Sprintf(" (commit %s, %s)", said.GitCommit, said.BuildDate)
			}
			_, err = fmt.Fprintf(a.out, "Server Version: %s%s\n", said.GitVersion, from)
			return err
		},
	}
	cmd.Flags().BoolVarP(&clientOnly, "client", "c", false, "do not ask the cluster")
	return cmd
}
